"""What is known of a network to be served, and what a person still has to say."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from math import lcm
from typing import Any

from vllm_raster_model.checkpoints.data_modules import Statistics
from vllm_raster_model.checkpoints.documents import one_line
from vllm_raster_model.checkpoints.options import Options
from vllm_raster_model.config import RasterConfig
from vllm_raster_model.errors import ContractError, RasterModelError
from vllm_raster_model.networks import network_class
from vllm_raster_model.networks.geometry import Geometry

_OVERLAP = 8
"""Neighbouring windows share this part of their side where nothing else is said."""


@dataclass
class Facts:
    """What a source says; None where it does not.

    Attributes:
        source: What it is, for people.
        network: The network's configuration, as `vision_config` holds it.
        band_count: Bands that the network reads.
        bands: Their names.
        frames: Dates in one input.
        coordinates: What else the network is told.
        encoder: Its encoder, for people.
        encodings: What else the network can be told.
        first_day: Number of 1 January among the days of a year.
        mean: One number a band, or one list a band of one number a date.
        std: Like `mean`.
        scale: Factor from stored counts to the unit of `mean`.
        nodata_fill: Stands in for missing pixels, in the unit of `mean`.
        tile: Side of a window in pixels.
        overlap: Pixels that neighbouring windows share.
        kind: `classes`, `values` or `image`.
        channels: Channels of the answer.
        channel_names: Their names.
        unit: Of the values.
        patch: Side of a patch in pixels.
        notes: What a person should know.
        licence: As the source states it.
    """

    source: str
    network: dict[str, Any]
    band_count: int
    frames: int
    kind: str
    channels: int
    patch: int
    bands: tuple[str, ...] | None = None
    coordinates: tuple[str, ...] = ()
    encoder: str = "the network"
    encodings: tuple[str, ...] = ()
    first_day: int = 1
    mean: Statistics | None = None
    std: Statistics | None = None
    scale: float | None = None
    offset: float = 0.0
    nodata_fill: float | None = None
    tile: int | None = None
    overlap: int | None = None
    channel_names: tuple[str, ...] | None = None
    unit: str | None = None
    notes: list[str] = field(default_factory=list)
    licence: str | None = None

    def apply(self, options: Options) -> None:
        """Takes over what a person says.

        Raises:
            ContractError: It does not fit the network.
        """
        if options.bands is not None:
            self.bands = options.named("bands", options.bands, self.band_count)
        for name in ("mean", "std"):
            if (given := getattr(options, name)) is not None:
                self._check_count(name, given)
                setattr(self, name, given)
        if options.unit is not None and self.kind == "classes":
            raise ContractError("--unit is for a regression's values; this network gives classes")
        self._take_coordinates(options.coordinates)
        for name in ("scale", "offset", "nodata_fill", "tile", "overlap", "unit"):
            if (given := getattr(options, name)) is not None:
                setattr(self, name, given)
        if options.classes is not None:
            self.channel_names = options.named("classes", options.classes, self.channels)

    def _take_coordinates(self, given: tuple[str, ...] | None) -> None:
        if given is not None:
            if unable := [one for one in given if one not in self.encodings]:
                raise ContractError(
                    f"{self.encoder} has no encoding of {' and '.join(unable)}: leave it out of "
                    "--coordinates"
                )
            self.coordinates = given
        elif left_out := [one for one in self.encodings if one not in self.coordinates]:
            self.notes.append(
                f"The network has encodings of {' and '.join(left_out)}, but was not told in "
                "training: they are left out "
                f"(--coordinates {','.join(self.encodings)} keeps them)"
            )

    def _check_count(self, name: str, given: Sequence[float]) -> None:
        if len(given) not in (1, self.band_count):
            raise ContractError(
                f"--{name} needs 1 number or one for each of the {self.band_count} bands, "
                f"got {len(given)}: {', '.join(f'{one:g}' for one in given[:12])}"
            )

    def missing(self) -> list[str]:
        """The options that a person has to give, for the source says nothing of it."""
        needed = ("bands", "mean", "std", "scale", "nodata_fill", "tile")
        return [f"--{n.replace('_', '-')}" for n in needed if getattr(self, n) is None]

    def config(self) -> RasterConfig:
        """The configuration to serve the network with.

        Raises:
            ContractError: Something is missing, or does not fit.
        """
        if missing := self.missing():
            raise ContractError(
                f"The source does not say all that is needed: give {', '.join(missing)}"
            )
        with building():
            config = RasterConfig(
                vision_config=self.network,
                raster=self._block(),
                architectures=["RasterForImageToImage"],
                dtype="float32",
            )
            # Reads the block, so that what cannot be is found here.
            tile = config.contract.tile
            if self.tile is not None and tile.size != self.tile:
                self._note(
                    f"The tile of {self.tile} pixels became {tile.size}: whole cells of "
                    f"{tile.multiple_of}, {tile.minimum} or more"
                )
            return config

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    def _block(self) -> dict[str, Any]:
        tile, scales = self.sizes()
        return {
            "version": 1,
            "input": {
                "bands": list(self.bands or ()),
                "scale": self.scale,
                "offset": self.offset,
                "mean": _listed(self.mean),
                "std": _listed(self.std),
                "nodata_fill": self.nodata_fill,
                "frames": self.frames,
                "coordinates": list(self.coordinates),
                "first_day": self.first_day,
            },
            "tile": tile,
            "output": {"kind": self.kind, **scales, **self._channels()},
        }

    def sizes(self) -> tuple[dict[str, int], dict[str, int]]:
        """The `tile` of the `raster` block, and the scales of its `output`.

        Without a tile, its size and overlap are not among them.
        """
        geometry = self._geometry()
        cell = lcm(self.patch, geometry.multiple, geometry.downscale)
        tile = {"multiple_of": cell, "minimum": _up(geometry.minimum, cell)}
        if self.tile is not None:
            size = max(_up(self.tile, cell), tile["minimum"])
            overlap = self.overlap
            if overlap is None:
                overlap = size // _OVERLAP // geometry.downscale * geometry.downscale
            tile = {"size": size, **tile, "overlap": overlap}
        scales = {"upscale": geometry.upscale, "downscale": geometry.downscale}
        return tile, {name: one for name, one in scales.items() if one != 1}

    def _geometry(self) -> Any:
        """Which windows the network takes, and how fine its answer is."""
        arguments = dict(self.network)
        network = network_class(arguments.pop("model_type"))
        if not hasattr(network, "describe"):
            # It gives a pixel for a pixel, of whole patches.
            return Geometry(Fraction(1), self.patch, self.patch)
        return network.describe(network.config_class(**arguments), self.frames, self.tile)

    def _channels(self) -> dict[str, Any]:
        names = self.channel_names
        if self.kind == "classes":
            names = names or tuple(f"class {i}" for i in range(self.channels))
            return {"classes": [{"name": one} for one in names]}
        if names is None:
            one = self.channels == 1
            names = ("value",) if one else tuple(f"value {i}" for i in range(self.channels))
        unit = {} if self.unit is None else {"unit": self.unit}
        return {"bands": [{"name": one, **unit} for one in names]}


@contextmanager
def building() -> Iterator[None]:
    """Says in one line why a network cannot be built, whatever part of PyTorch finds it out."""
    try:
        yield
    except RasterModelError:
        raise
    except (
        ArithmeticError,
        LookupError,
        MemoryError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        raise ContractError(f"The network cannot be built: {one_line(error)}") from error


def _listed(statistics: Statistics | None) -> list[Any]:
    return [list(one) if isinstance(one, tuple) else one for one in statistics or ()]


def _up(value: int, step: int) -> int:
    return -(-value // step) * step
