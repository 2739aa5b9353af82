"""What this plugin reads of a checkpoint's `raster` block: what to cut, and what comes back.

The rest of the block, how pixels are normalised, is for whatever serves the checkpoint; so keys
that are not named here are left alone.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from vllm_raster_io.errors import ContractError

PositiveInt = Annotated[int, Field(ge=1)]
LARGEST_TILE = 1 << 15
"""Pixels a side."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class InputContract(_Part):
    """The bands in the network's order, the dates, and what else the network is told.

    A count c of the file stands for c * scale + offset. The first of January is day `first_day`
    of the year.
    """

    bands: tuple[str, ...] = Field(min_length=1)
    scale: float = 1.0
    offset: float = 0.0
    frames: PositiveInt = 1
    coordinates: tuple[Literal["time", "location"], ...] = ()
    first_day: Literal[0, 1] = 1


class TileContract(_Part):
    """Largest side of a window and the overlap of neighbours, in pixels of the scene."""

    size: Annotated[PositiveInt, Field(le=LARGEST_TILE)] = 512
    overlap: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _overlaps_in_part(self) -> Self:
        if self.overlap >= self.size:
            raise ValueError(f"overlap must be less than size={self.size}, got {self.overlap}")
        return self


class ClassContract(_Part):
    """One class: its name, and its colour as `#rrggbb`."""

    name: str
    color: Annotated[str, Field(pattern=r"^#[0-9a-fA-F]{6}$")] | None = None


class BandContract(_Part):
    """One band of the map: its name and unit."""

    name: str
    unit: str | None = None


class OutputContract(_Part):
    """What the network gives: scores of classes, values with a unit, or an image."""

    kind: Literal["classes", "values", "image"]
    upscale: PositiveInt = 1
    downscale: PositiveInt = 1
    classes: tuple[ClassContract, ...] = ()
    bands: tuple[BandContract, ...] = ()

    @model_validator(mode="after")
    def _has_channels(self) -> Self:
        wanted = "classes" if self.kind == "classes" else "bands"
        if not getattr(self, wanted):
            raise ValueError(f"kind={self.kind!r} needs {wanted!r}")
        if self.upscale > 1 and self.downscale > 1:
            raise ValueError(
                f"one of upscale and downscale is 1, got {self.upscale} and {self.downscale}"
            )
        return self

    @property
    def channels(self) -> int:
        """Number of channels of a window's map."""
        return len(self.classes if self.kind == "classes" else self.bands)

    def extent(self, pixels: int) -> int:
        """Pixels of the map over so many pixels of the scene, along one axis."""
        return -(-pixels // self.downscale) * self.upscale


Wordings = dict[str, tuple[str, ...]]
"""How each thing may be asked for."""


class InstructionContract(_Part):
    """The prompt around a client's instruction, and instructions known from training."""

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

    def prompt(self, instruction: str) -> str:
        """The whole prompt for an instruction."""
        return self.template.replace("{instruction}", instruction)

    def examples(self) -> str:
        """One instruction for each thing that can be asked for, to show to a client."""
        return ", ".join(repr(wordings[0]) for wordings in self.wordings.values())


class RasterContract(_Part):
    """The `raster` block, version 1."""

    version: Literal[1]
    input: InputContract
    tile: TileContract = TileContract()
    output: OutputContract
    instructions: InstructionContract | None = None

    @model_validator(mode="after")
    def _whole_blocks(self) -> Self:
        if self.tile.size % self.output.downscale:
            raise ValueError(
                f"tile.size must be a multiple of output.downscale={self.output.downscale}, "
                f"got {self.tile.size}"
            )
        return self

    @classmethod
    def of(cls, config: Any) -> Self:
        """Reads the block of a checkpoint's configuration.

        Args:
            config: The configuration as vLLM holds it; its attribute `raster` is the block.

        Raises:
            ContractError: There is no block, or it is not usable.
        """
        block = getattr(config, "raster", None)
        if block is None:
            raise ContractError(
                "The IO processor `raster` needs a `raster` block in the checkpoint's config.json, "
                "and there is none"
            )
        try:
            return cls.model_validate(block)
        except ValidationError as error:
            problems = "; ".join(
                f"{'.'.join(map(str, one['loc'])) or 'raster'}: {one['msg']}"
                for one in error.errors()
            )
            raise ContractError(
                f"The raster block of config.json is not usable: {problems}"
            ) from error
