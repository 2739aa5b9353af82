"""What stored numbers show: palettes, inks, gray, and alpha that is none."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from rasterio.enums import ColorInterp

from vllm_raster_io.formats import PNG, TIFF, Format
from vllm_raster_io.stored import Palette, Stored

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]

_RGB = ("red", "green", "blue")
_INKS = (ColorInterp.cyan, ColorInterp.magenta, ColorInterp.yellow, ColorInterp.black)


class Rendition:
    """The bands of a scene as they are taken, each made of one of the file's.

    Args:
        stored: The file.
        sources: The file's band that each of the scene's is, counted from 0.
        alpha: Whether each of the scene's bands is an alpha band.
        bits: Values of fewer bits than their type are spread over so many, as PNG says.
        inverted: Whether the greatest value becomes 0, and 0 the greatest.

    Attributes:
        names: Of the scene's bands, as the file has them.
        colours: Of the scene's bands, where they are a picture's: "red", "green", "blue".
        alpha: For each, whether it is an alpha band.
    """

    def __init__(
        self,
        stored: Stored,
        sources: Sequence[int] | None = None,
        alpha: Sequence[bool] | None = None,
        *,
        bits: int | None = None,
        inverted: bool = False,
    ) -> None:
        self._sources = list(range(stored.count)) if sources is None else list(sources)
        self.names = [stored.descriptions[i] for i in self._sources]
        self.colours: list[str | None] = [None] * len(self._sources)
        if alpha is None:
            alpha = [stored.interpretations[i] == ColorInterp.alpha for i in self._sources]
        self.alpha = list(alpha)
        self._dtypes = [stored.dtypes[i] for i in self._sources]
        self._greatest = 2 ** stored.bits(0) - 1
        self._factor = 1 if bits is None else (2**bits - 1) // self._greatest
        self._inverted = inverted

    @property
    def count(self) -> int:
        """Bands of the scene."""
        return len(self._sources)

    def dtype(self, indices: Sequence[int]) -> np.dtype[Any]:
        """The type that holds the values of these bands."""
        return np.result_type(*(self._dtypes[i] for i in indices))

    def stored(self, indices: Sequence[int]) -> list[int]:
        """The file's bands that these are made of."""
        return [self._sources[i] for i in indices]

    def masks(self, indices: Sequence[int]) -> list[int]:
        """The file's alpha bands, without those that are among these.

        An alpha band that is asked for is taken for what the client says it is.
        """
        return [
            source
            for i, (source, alpha) in enumerate(zip(self._sources, self.alpha, strict=True))
            if alpha and i not in indices
        ]

    def render(self, pixels: Array, indices: Sequence[int]) -> tuple[Array, Mask | None]:
        """Makes bands of the file's.

        Args:
            pixels: The file's bands (bands, height, width), as `stored` names them.
            indices: The scene's bands that they are for.

        Returns:
            The bands, and where they can be seen, if that does not follow from the file's bands.
        """
        if self._inverted:
            pixels = pixels.dtype.type(self._greatest) - pixels
        if self._factor != 1:
            pixels = pixels * pixels.dtype.type(self._factor)
        return pixels, None


class PaletteRendition(Rendition):
    """Red, green, blue and, where any is not opaque, alpha of the ids of a palette."""

    def __init__(self, stored: Stored, palette: Palette) -> None:
        size = 2 ** min(16, stored.dtypes[0].itemsize * 8)
        # An id that the palette leaves out is black.
        self._table = np.zeros((size, 4), dtype=np.uint8)
        self._table[:, 3] = 255
        for number, colour in palette.items():
            if 0 <= number < size:
                self._table[number] = colour
        opaque = bool((self._table[:, 3] == 255).all())
        count = 3 if opaque else 4
        super().__init__(stored, [0] * count, [False, False, False, True][:count])
        self.names = [None] * count
        self._dtypes = [np.dtype(np.uint8)] * count

    @property
    def is_gray(self) -> bool:
        """Whether it has no other colours."""
        red, green, blue = self._table[:, :3].T
        return bool(((red == green) & (green == blue)).all())

    def masks(self, indices: Sequence[int]) -> list[int]:
        """None: alpha is in the palette."""
        return []

    def stored(self, indices: Sequence[int]) -> list[int]:
        """The only band."""
        return [0]

    def render(self, pixels: Array, indices: Sequence[int]) -> tuple[Array, Mask | None]:
        """Looks each id up; where the colour cannot be seen at all, the pixel is invalid."""
        ids = pixels[0]
        rendered = np.stack([self._table[:, i][ids] for i in indices])
        return rendered, None if 3 in indices else self._table[:, 3][ids] > 0


class GrayPaletteRendition(PaletteRendition):
    """One band of a palette that has no colours but grays."""

    def __init__(self, stored: Stored, palette: Palette) -> None:
        super().__init__(stored, palette)
        del (
            self.names[1:3],
            self.colours[1:3],
            self.alpha[1:3],
            self._sources[1:3],
            self._dtypes[1:3],
        )

    def render(self, pixels: Array, indices: Sequence[int]) -> tuple[Array, Mask | None]:
        """Looks each id up."""
        return super().render(pixels, [3 if i else 0 for i in indices])


class InkRendition(Rendition):
    """Red, green and blue of cyan, magenta, yellow and black: what they leave of white."""

    def __init__(self, stored: Stored) -> None:
        others = [i for i, one in enumerate(stored.interpretations) if i >= len(_INKS)]
        others = [i for i in others if stored.interpretations[i] == ColorInterp.alpha]
        super().__init__(stored, [0, 1, 2, *others])
        self.names = [None] * self.count

    def stored(self, indices: Sequence[int]) -> list[int]:
        """All inks, and alpha if it is asked for."""
        return [0, 1, 2, 3, *(self._sources[i] for i in indices if i >= 3)]

    def render(self, pixels: Array, indices: Sequence[int]) -> tuple[Array, Mask | None]:
        """What each ink leaves of what black leaves, rounded."""
        greatest = np.uint64(self._greatest)
        inks = pixels[:4].astype(np.uint64)
        light = greatest - inks[3]
        absorbed = (inks[:3] * light + greatest // np.uint64(2)) // greatest
        colours = [*(light - absorbed).astype(pixels.dtype), *pixels[4:]]
        alphas = iter(range(3, len(colours)))
        return np.stack([colours[i if i < 3 else next(alphas)] for i in indices]), None


def rendition_of(
    stored: Stored, form: Format, wanted: Sequence[str] = (), dates: int = 1
) -> tuple[Rendition, list[str]]:
    """How the bands of a file are taken.

    Args:
        stored: The file.
        form: Its format.
        wanted: The checkpoint's bands; without them no band is made of another.
        dates: How many dates the file holds.

    Returns:
        The rendition, and notes for the client on what does not go without saying.
    """
    rendition, notes = _colours(stored, form, wanted, dates)
    in_colour = (
        form.is_picture
        or type(rendition) is not Rendition
        or "SOURCE_COLOR_SPACE" in stored.structure
    )
    if in_colour and sum(not one for one in rendition.alpha) == len(_RGB):
        called = {_colour(one): one for one in wanted}  # the checkpoint's own names of them
        names = iter([called.get(one, one) for one in _RGB])
        rendition.colours = [None if alpha else next(names) for alpha in rendition.alpha]
    return rendition, notes


def was_converted(stored: Stored) -> bool:
    """Whether GDAL makes red, green and blue of other colours, and perhaps alpha besides."""
    by_jpeg = stored.structure.get("COMPRESSION") == "YCbCr JPEG"
    return "SOURCE_COLOR_SPACE" in stored.structure and not by_jpeg


def _colours(
    stored: Stored, form: Format, wanted: Sequence[str], dates: int
) -> tuple[Rendition, list[str]]:
    if tuple(stored.interpretations[:4]) == _INKS and stored.dtypes[0].kind == "u":
        return InkRendition(stored), ["The inks (CMYK) were turned into red, green and blue"]
    if stored.palette is not None:
        return _of_palette(stored, stored.palette, form, wanted)
    colours = [i for i, one in enumerate(stored.interpretations) if one != ColorInterp.alpha]
    if colours == [0] and _wants_rgb(wanted) and _is_gray(stored, form):
        rest = list(range(1, stored.count))
        alpha = [False] * 3 + [True] * len(rest)
        options = _gray_options(stored, form)
        note = "The gray band was taken for red, green and blue"
        return Rendition(stored, [0, 0, 0, *rest], alpha, **options), [note]
    if (
        form is TIFF
        and stored.count == len(wanted) * dates == len(colours) + 1
        and stored.dtypes[0] == np.uint8
        and not was_converted(stored)
    ):
        note = (
            f"The last band was taken for {wanted[-1]}: it is marked as alpha, as GDAL marks the "
            "fourth of any four bands of 8 bits, but the checkpoint takes as many bands as there "
            "are. To have it as a mask, give `indices`"
        )
        return Rendition(stored, alpha=[False] * stored.count), [note]
    notes = []
    if _is_inverted(stored):
        notes.append("0 is white in this file; the values were inverted, so that 0 is black")
    return Rendition(stored, **_gray_options(stored, form)), notes


def _of_palette(
    stored: Stored, palette: Palette, form: Format, wanted: Sequence[str]
) -> tuple[Rendition, list[str]]:
    expanded = PaletteRendition(stored, palette)
    note = "The palette was expanded into red, green and blue"
    if len(wanted) in (3, 4):
        return expanded, [note]
    if form is TIFF or not wanted:
        note = "The palette was left aside, and the ids were taken as the values of the band"
        return Rendition(stored, inverted=_is_inverted(stored)), [note]
    if expanded.is_gray:
        return GrayPaletteRendition(stored, palette), []
    return expanded, [note]


def _gray_options(stored: Stored, form: Format) -> dict[str, Any]:
    # A gray of a PNG of 1 to 4 bits is a part of white, as of one of 8.
    few = form is PNG and stored.bits(0) < 8
    return {"bits": 8 if few else None, "inverted": _is_inverted(stored)}


def _is_inverted(stored: Stored) -> bool:
    return stored.structure.get("MINISWHITE") == "YES" and stored.dtypes[0].kind == "u"


def _is_gray(stored: Stored, form: Format) -> bool:
    """Whether the only band is a picture's, and not one of a scene's many."""
    place = stored.place
    nowhere = not place.crs and place.transform.is_identity and not place.gcps[0]
    return form.driver is not None and nowhere and not stored.descriptions[0]


def _wants_rgb(wanted: Sequence[str]) -> bool:
    return sorted(_colour(one) for one in wanted) == sorted(_RGB)


def _colour(name: str) -> str:
    folded = name.strip().casefold()
    return next((one for one in _RGB if folded in (one, one[0])), folded)
