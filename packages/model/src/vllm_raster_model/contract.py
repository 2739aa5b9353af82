"""The `raster` block of a checkpoint's config.json: what it eats and what it gives.

The block is the contract between a checkpoint, this package (which normalises by it) and the
IO processor plugin (which cuts scenes and writes maps by it). It is versioned; a key that is
not known is refused, so that a misspelt one is found when the server starts.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    field_validator,
    model_validator,
)

from vllm_raster_model.errors import ContractError

Coordinate = Literal["time", "location"]
ComputeDtype = Literal["auto", "float32", "bfloat16", "float16"]
PositiveInt = Annotated[int, Field(ge=1, strict=True)]
LARGEST_TILE = 1 << 15
"""Pixels a side; of more no network was heard of, and what follows from it would not fit."""
Number = Annotated[float, Field(strict=True)]
PositiveNumber = Annotated[Number, Field(gt=0)]

_FORMS = ("number", "a number each frame")


def _form(value: Any) -> str:
    return _FORMS[isinstance(value, list | tuple)]


OneOrEachFrame = Annotated[
    Annotated[Number, Tag(_FORMS[0])] | Annotated[tuple[Number, ...], Tag(_FORMS[1])],
    Discriminator(_form),
]
PositiveOneOrEachFrame = Annotated[
    Annotated[PositiveNumber, Tag(_FORMS[0])]
    | Annotated[tuple[PositiveNumber, ...], Tag(_FORMS[1])],
    Discriminator(_form),
]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class InputContract(_Part):
    """What a window's pixels are and how they become the network's input.

    A pixel `p` of band `b`, as the file stores it, becomes
    `(p * scale + offset - mean[b]) / std[b]`; an invalid one becomes
    `(nodata_fill - mean[b]) / std[b]`.

    Attributes:
        bands: Names of the bands, in the network's order.
        scale: Factor from stored counts to the unit of `mean` and `std`.
        offset: Added after the factor.
        mean: One number a band, or one for all; in the unit after scale and offset. Instead of
            each number there may be a list of one number a frame.
        std: Like `mean`; above 0.
        nodata_fill: Stands in for invalid pixels; in the unit of `mean`.
        frames: Number of dates in one input.
        coordinates: What else the network is told: the date of each frame, the place.
        first_day: Number of 1 January among the days of a year, as in training: 1 or 0. Whoever
            makes image items counts by it.
    """

    bands: tuple[str, ...] = Field(min_length=1)
    scale: Number = 1.0
    offset: Number = 0.0
    mean: tuple[OneOrEachFrame, ...] = (0.0,)
    std: tuple[PositiveOneOrEachFrame, ...] = (1.0,)
    nodata_fill: Number = 0.0
    frames: PositiveInt = 1
    coordinates: tuple[Coordinate, ...] = ()
    first_day: Literal[0, 1] = 1

    @model_validator(mode="after")
    def _one_number_a_band(self) -> Self:
        if len(set(self.bands)) != len(self.bands):
            raise ValueError(f"bands must differ from one another, got {list(self.bands)}")
        if self.scale == 0:
            raise ValueError("scale must not be 0: all pixels would be alike")
        for name in ("mean", "std"):
            numbers = getattr(self, name)
            if len(numbers) not in (1, len(self.bands)):
                raise ValueError(
                    f"{name} needs 1 number or one for each of the {len(self.bands)} bands, "
                    f"got {len(numbers)}"
                )
            counts = {len(one) if isinstance(one, tuple) else None for one in numbers}
            if len(counts) > 1 or not counts <= {None, self.frames}:
                raise ValueError(
                    f"{name} needs one number for each of the {self.frames} frames in each list, "
                    f"and lists for all bands or for none, got {list(numbers)}"
                )
        return self


class TileContract(_Part):
    """How large a window may be.

    Attributes:
        size: Largest height and width of a window, in pixels; the engine is profiled with it.
        multiple_of: Side of a grid cell, in pixels; a window is padded to whole cells.
        minimum: Smallest height and width after padding, in pixels; a multiple of the cell.
        overlap: Pixels that neighbouring windows share unless a request says otherwise.
    """

    size: Annotated[PositiveInt, Field(le=LARGEST_TILE)] = 512
    multiple_of: PositiveInt = 16
    minimum: PositiveInt | None = None
    overlap: Annotated[int, Field(ge=0, strict=True)] = 0

    @model_validator(mode="after")
    def _whole_cells(self) -> Self:
        for name in ("size", "minimum"):
            value = getattr(self, name)
            if value is not None and value % self.multiple_of:
                raise ValueError(
                    f"{name} must be a multiple of multiple_of={self.multiple_of}, got {value}"
                )
        if self.overlap >= self.size:
            raise ValueError(f"overlap must be less than size={self.size}, got {self.overlap}")
        if self.minimum is not None and self.minimum > self.size:
            raise ValueError(f"minimum must not exceed size={self.size}, got {self.minimum}")
        return self

    @property
    def minimum_cells(self) -> int:
        """Fewest rows and columns of cells that a window is padded to."""
        return (self.minimum or self.multiple_of) // self.multiple_of


class ClassContract(_Part):
    """One class of the map: its name and, for pictures, its colour (`#rrggbb`)."""

    name: str
    color: Annotated[str, Field(pattern=r"^#[0-9a-fA-F]{6}$")] | None = None


class BandContract(_Part):
    """One band of the map: its name and the unit of its values."""

    name: str
    unit: str | None = None


class OutputContract(_Part):
    """What comes back.

    Attributes:
        kind: `classes` (one score a class), `values` (physical quantities) or `image`.
        upscale: Side of the block of output pixels that one input pixel becomes.
        downscale: Side of the block of input pixels that becomes one output pixel; 1 where
            `upscale` is more.
        classes: The classes in the order of the network's channels, for `classes`.
        bands: The bands in the order of the network's channels, otherwise.
    """

    kind: Literal["classes", "values", "image"]
    upscale: PositiveInt = 1
    downscale: PositiveInt = 1
    classes: tuple[ClassContract, ...] = ()
    bands: tuple[BandContract, ...] = ()

    @model_validator(mode="after")
    def _names_its_channels(self) -> Self:
        wanted, unwanted = ("classes", "bands") if self.kind == "classes" else ("bands", "classes")
        if not getattr(self, wanted) or getattr(self, unwanted):
            raise ValueError(f"kind={self.kind!r} needs {wanted!r} and no {unwanted!r}")
        names = [one.name for one in self.classes or self.bands]
        if len(set(names)) != len(names):
            raise ValueError(f"names of {wanted} must differ from one another, got {names}")
        if self.upscale > 1 and self.downscale > 1:
            raise ValueError(
                f"upscale={self.upscale} and downscale={self.downscale} cannot both be above 1"
            )
        return self

    @property
    def channels(self) -> int:
        """Number of channels that the network predicts."""
        return len(self.classes or self.bands)


Wordings = dict[str, tuple[str, ...]]
"""How each thing may be asked for."""


class InstructionContract(_Part):
    """What an instructed checkpoint may be told, and how it was told in training.

    Attributes:
        template: The prompt, with `{instruction}` where the client's words go and `<image>`
            behind them, so that the image's cells can attend to the words.
        wordings: Instructions that the checkpoint was trained on, by what they ask for.
    """

    template: str = "{instruction}<image>"
    wordings: Wordings

    @field_validator("wordings")
    @classmethod
    def _something_to_ask_for(cls, wordings: Wordings) -> Wordings:
        if not wordings or not all(wordings.values()):
            raise ValueError(
                "there must be at least one target, each with at least one way to ask for it, as "
                'in {"trees": ["find the trees"]}: clients that send no prompt are shown them'
            )
        return wordings

    @model_validator(mode="after")
    def _words_before_the_image(self) -> Self:
        before, *after = self.template.split("<image>")
        if len(after) != 1 or before.count("{instruction}") != 1 or "{instruction}" in after[0]:
            raise ValueError(
                "template must hold {instruction} once and <image> once behind it, "
                f"got {self.template!r}"
            )
        return self


class RasterContract(_Part):
    """The whole `raster` block, version 1; with `instructions` for an instructed checkpoint.

    `compute_dtype` is the type that the network computes in where it is served; its map is float32
    in any case. `auto` is for `vllm_raster_model.precision` to choose, which asks `agreement`: by
    type, the share of the pixels of real scenes whose map is the same as in float32, 0 to 1.
    """

    version: Literal[1]
    compute_dtype: ComputeDtype = "auto"
    agreement: dict[Literal["bfloat16"], Annotated[float, Field(ge=0, le=1)]] = {}
    input: InputContract
    tile: TileContract = TileContract()
    output: OutputContract
    instructions: InstructionContract | None = None

    @model_validator(mode="after")
    def _whole_output_pixels(self) -> Self:
        if self.tile.multiple_of % self.output.downscale:
            raise ValueError(
                f"tile.multiple_of must be a multiple of output.downscale="
                f"{self.output.downscale}, got {self.tile.multiple_of}"
            )
        return self

    @classmethod
    def parse(cls, block: Any) -> Self:
        """Reads the block as json gave it.

        Raises:
            ContractError: A key is missing, unknown or has a value that cannot be.
        """
        try:
            return cls.model_validate(block)
        except ValidationError as error:
            problems = "; ".join(
                f"{_place(one['loc'])}: {one['msg']} (got {one['input']!r})"
                for one in error.errors()
            )
            raise ContractError(
                f"The raster block of config.json is not usable: {problems}"
            ) from error

    @property
    def cell_block(self) -> int:
        """Side of the block of output that one cell becomes, in output pixels."""
        return self.tile.multiple_of * self.output.upscale // self.output.downscale

    @property
    def cell_width(self) -> int:
        """Numbers in the embedding of one cell: its block of output, flattened."""
        return self.output.channels * self.cell_block**2


def _place(keys: tuple[int | str, ...]) -> str:
    return ".".join(str(key) for key in keys if key not in _FORMS) or "raster"
