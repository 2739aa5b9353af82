"""What the service answers."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from vllm_raster_io.augmentation import Augment
from vllm_raster_io.bands import BandsBy
from vllm_raster_io.blending import Profile
from vllm_raster_io.options import Compression, Format, Product


class _Told(BaseModel):
    """A part of the answer, of which a client is always sent all."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)


class ClassSummary(_Told):
    """One class of a map: its id in the map, what it is, and on how many pixels it was found."""

    id: int = Field(description="The value that its pixels have in the map, from 0.")
    name: str = Field(description="As the checkpoint has it.")
    color: str | None = Field(description="As `#rrggbb`; null where the checkpoint gives none.")
    pixels: int = Field(description="How many pixels of the map are of it.")


class Effective(_Told):
    """What was done, in full, whether it was asked for or followed from the checkpoint."""

    indices: list[int] = Field(
        description="Bands of the file that were used, counted from 0; of several dates, one date "
        "after the other, each counted in its own file."
    )
    bands: list[str] = Field(description="The checkpoint's names of those bands.")
    file_bands: list[str | None] = Field(
        default=[], description="The file's names of the same, null for one without."
    )
    bands_by: BandsBy = Field(
        description="How they were chosen: by the request's `bands` or `indices`, by the file's "
        "names, or in order."
    )
    scale: list[float] | None = Field(
        default=None,
        description="What a count of each band was said to stand for; null for the checkpoint's.",
    )
    offset: list[float] | None = Field(
        default=None, description="What was added after, in the checkpoint's unit."
    )
    nodata: int | float | str | None = Field(
        default=None,
        description="The value said to be invalid, or `none`; null for what the file says.",
    )
    window: list[int] = Field(
        default=[],
        description="The part of the scene that was mapped, in its pixels: first column and first "
        "row, counted from 0, columns, rows.",
    )
    resolution: list[float] | None = Field(
        default=None,
        description="Size of the pixels that the network saw, across and down, in the unit of the "
        "scene's reference system; null where those are the scene's.",
    )
    resampling: str | None = Field(
        default=None, description="How pixels and map were brought to another size, if they were."
    )
    tile_size: int = Field(description="Largest side of a window in pixels.")
    overlap: int = Field(description="Least overlap of neighbouring windows in pixels.")
    blending: Profile = Field(description="How weights fall off across an overlap of windows.")
    augment: Augment = Field(
        default="none", description="In which ways the network saw each window."
    )
    windows: int = Field(
        description="Number of windows that the network saw: each as often as there are ways."
    )
    compression: Compression | None = Field(
        default=None, description="Of a GeoTIFF or COG; null for other files."
    )
    quality: int | None = Field(
        default=None, description="Of a lossy picture, from 1 to 100; null where nothing is lost."
    )
    priority: int | None = Field(
        default=None, description="As the scheduler was told it; null for none."
    )
    upscale: int = Field(
        default=1, description="Pixels of the map to one of the scene, along each side."
    )
    downscale: int = Field(
        default=1, description="Pixels of the scene to one of the map, along each side."
    )
    frames: int = Field(default=1, description="Dates that the network saw.")
    coordinates: list[str] = Field(description="What the network was told besides the pixels.")
    dates: list[str | None] | None = Field(
        default=None,
        description="Day (UTC) of each frame as the network was told it, null where unknown; null "
        "for a network that is not told the time.",
    )
    dates_by: list[str | None] | None = Field(
        default=None,
        description="What said each: `request`, or the name of the file's tag; null where unknown.",
    )
    location_by: Literal["request", "georeference"] | None = Field(
        default=None, description="What said where each window lies, if the network was told."
    )
    location: list[float] | None = Field(
        default=None,
        description="Latitude and longitude, in degrees on WGS 84, of the middle of what was "
        "mapped, as the network was told it; each window has its own. Null where it was told none.",
    )
    prompt: str | None = Field(default=None, description="The instruction, where there was one.")
    notes: list[str] = Field(default=[], description="What was unknown or looks odd.")


class ConfidenceFile(_Told):
    """The probability of each pixel's class, in a file like the map's, of one band."""

    data_format: Literal["b64_json", "path"] = Field(description="What `data` holds.")
    data: str = Field(description="The file in base64, or its path.", repr=False)
    dtype: Literal["float32", "uint8"] = Field(description="Type of its pixels.")
    nodata: int | Literal["nan"] = Field(description="Value of invalid pixels: 255, or `nan`.")
    scale: float | None = Field(
        description="What one count stands for, 1/254 of `uint8`; null for `float32`."
    )


class RasterAnswer(_Told):
    """The `data` of the service's answer, or the output of `LLM.encode`."""

    data_format: Literal["b64_json", "path"] = Field(
        default="b64_json", description="What `data` holds."
    )
    data: str = Field(
        description="The map: a file in base64, or the path of one, as the client may name it.",
        repr=False,
    )
    request_id: str | None = Field(default=None, description="As the server knows the request.")
    format: Format = Field(default="geotiff", description="What kind of file it is.")
    media_type: str = Field(
        default="image/tiff; application=geotiff", description="The same in the words of the web."
    )
    picture: str | None = Field(
        default=None,
        description="Of a file that is only to be looked at, how its colours came about; null for "
        "one that holds the numbers themselves.",
    )
    kind: Literal["classes", "values", "image"] = Field(description="What the checkpoint gives.")
    product: Product = Field(description="What was made of it.")
    width: int = Field(description="Columns of the map, in pixels.")
    height: int = Field(description="Rows of the map, in pixels.")
    dtype: str = Field(description="Type of the map's pixels; of a picture, before it was drawn.")
    nodata: int | float | str = Field(
        description="Value of invalid pixels, which no prediction takes; `nan` for floats."
    )
    scale: float | None = Field(
        default=None, description="What one count stands for, of probabilities in uint8."
    )
    invalid_pixels: int = Field(description="Pixels of the map that are nodata.")
    crs: str | None = Field(
        description="Coordinate reference system, as `EPSG:32632` or as WKT; null where the scene "
        "has none."
    )
    transform: list[float] | None = Field(
        default=None,
        description="a, b, c, d, e, f of x = a column + b row + c and y = d column + e row + f, "
        "column and row counted from the corner of the first pixel, x and y in the unit of `crs`; "
        "null where the scene tells none.",
    )
    classes: list[ClassSummary] | None = Field(
        default=None, description="What is on a map of class ids; null for others."
    )
    confidence: ConfidenceFile | None = Field(
        default=None, description="A second file, where it was asked for."
    )
    effective: Effective = Field(description="What was done, as it was done.")
