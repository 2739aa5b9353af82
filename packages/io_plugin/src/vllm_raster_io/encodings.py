"""How a map is written: what is asked for, and whether it can be had."""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np

from vllm_raster_io.contract import OutputContract
from vllm_raster_io.errors import LimitError, RequestError
from vllm_raster_io.georeference import Georeference
from vllm_raster_io.maps import RasterMap, write_cog, write_geotiff
from vllm_raster_io.options import Compression, Format, MapOptions, Product
from vllm_raster_io.pictures import LARGEST, write_picture

PRODUCTS: dict[str, tuple[Product, ...]] = {
    "classes": ("classes", "probabilities", "logits"),
    "values": ("values",),
    "image": ("image",),
}
"""What can be made of what a checkpoint gives; the first is what is made unless asked otherwise."""
_GEOTIFFS = ("geotiff", "cog")
_LOSSY = ("jpeg", "webp")
_PICTURES = ("png", "webp", "jpeg")


@dataclass(frozen=True)
class Encoding:
    """What a map holds and how it is written.

    Attributes:
        product: What it holds.
        format: The kind of file.
        dtype: Of probabilities and confidence.
        confidence: Whether a file of it goes beside the map.
        compression: Of a GeoTIFF; None for other files.
        quality: Of a lossy picture; None for others.
    """

    product: Product
    format: Format = "geotiff"
    dtype: Literal["float32", "uint8"] = "float32"
    confidence: bool = False
    compression: Compression | None = None
    quality: int | None = None

    @classmethod
    def choose(cls, options: MapOptions, output: OutputContract) -> Self:
        """Finds what a request asks for.

        Raises:
            RequestError: The checkpoint does not give that, or the format does not hold it.
        """
        product = _product(options, output)
        if options.confidence and product != "classes":
            raise RequestError(
                f"`confidence` goes beside class ids, but the map holds {product}: leave it out"
            )
        if options.confidence and options.format in _PICTURES:
            raise RequestError(
                f"`confidence` is refused for the format {options.format!r}: ask for 'geotiff', "
                "'cog' or 'npy'"
            )
        _check_dtype(options, product)
        if options.compression is not None and options.format not in _GEOTIFFS:
            raise RequestError(
                f"`compression` is for 'geotiff' and 'cog', but the format is {options.format!r}: "
                "leave it out"
            )
        if options.quality is not None and options.format not in _LOSSY:
            raise RequestError(
                f"`quality` is for 'jpeg' and 'webp', but the format is {options.format!r}: "
                "leave it out"
            )
        compression = options.compression or "deflate"
        return cls(
            product,
            options.format,
            options.dtype or "float32",
            options.confidence,
            compression if options.format in _GEOTIFFS else None,
            90 if options.quality is None and options.format == "jpeg" else options.quality,
        )

    def check_size(self, height: int, width: int) -> None:
        """Sees whether the format holds a map of this size.

        Raises:
            LimitError: It does not.
        """
        largest = LARGEST.get(self.format)
        if largest is not None and max(height, width) > largest:
            raise LimitError(
                f"A {self.format} holds at most {largest} pixels a side, but the map has "
                f"{height} × {width}: ask for another format"
            )

    def write(
        self, raster: RasterMap, place: Georeference, tags: Mapping[str, str]
    ) -> tuple[bytes, str | None]:
        """Writes a map.

        Args:
            raster: The map.
            place: Where it lies, for formats that hold that.
            tags: The scene's.

        Returns:
            The file, and where it is only a picture how its colours came about.
        """
        if self.format == "geotiff":
            return write_geotiff(raster, place, tags, self.compression or "deflate"), None
        if self.format == "cog":
            return write_cog(raster, place, tags, self.compression or "deflate"), None
        if self.format == "npy":
            buffer = io.BytesIO()
            np.save(buffer, raster.pixels, allow_pickle=False)
            return buffer.getvalue(), None
        return write_picture(raster, self.format, self.quality)


def _product(options: MapOptions, output: OutputContract) -> Product:
    known = PRODUCTS[output.kind]
    product = options.product or known[0]
    if product not in known:
        raise RequestError(
            f"`product` {product!r} is refused: this checkpoint maps {output.kind}, so there is "
            f"{', '.join(map(repr, known))}"
        )
    return product


def _check_dtype(options: MapOptions, product: Product) -> None:
    if options.dtype is None or product == "probabilities" or options.confidence:
        return
    if product == "classes":
        raise RequestError(
            "`dtype` is refused: class ids have the smallest integer type that holds them. "
            "Leave it out"
        )
    if options.dtype != "float32":
        raise RequestError(
            f"`dtype` {options.dtype!r} is refused: {product} are float32, as no integer holds "
            "them. Leave it out"
        )
