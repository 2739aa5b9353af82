"""Who may read and write what: where a request's raster may come from, and where a map may go."""

from vllm_raster_io.errors import AccessError, RequestError
from vllm_raster_io.limits import Tally
from vllm_raster_io.requests import RasterRequest
from vllm_raster_io.uploads import Upload


def read_sources(request: RasterRequest, dates: int = 1) -> list[Upload]:
    """The files that a request sends, in its order: one a date, or a single one.

    Raises:
        AccessError: The request names paths or URLs, to read or to write.
        RequestError: What it sends is not base64, or of another number.
        LimitError: It is larger than allowed.
    """
    if request.data_format != "b64_json":
        raise AccessError(
            f"data_format {request.data_format!r} is refused: this server reads no "
            f"{'file of its own' if request.data_format == 'path' else 'URL'} for a client. "
            "Send the file itself in base64 with data_format 'b64_json'"
        )
    if request.out_data_format != "b64_json":
        raise AccessError(
            f"out_data_format {request.out_data_format!r} is refused: this server writes no file "
            "for a client. Take the map from the answer with out_data_format 'b64_json'"
        )
    files = request.data if isinstance(request.data, list) else [request.data]
    if len(files) not in (1, dates):
        raise RequestError(_wrong_number(len(files), dates))
    tally = Tally()
    return [one.finish() if isinstance(one, Upload) else Upload.decode(one, tally) for one in files]


def _wrong_number(files: int, dates: int) -> str:
    if dates == 1:
        return f"`data` holds {files} files, but this checkpoint takes one: send each by itself"
    return (
        f"`data` holds {files} files, but this checkpoint takes {dates} dates: "
        "send one file a date, or a single one with the bands of all"
    )
