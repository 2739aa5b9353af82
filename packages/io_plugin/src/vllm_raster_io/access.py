"""Who may read and write what: where a request's raster may come from, and where a map may go."""

from vllm_raster_io.errors import AccessError
from vllm_raster_io.requests import RasterRequest
from vllm_raster_io.uploads import Upload


def read_source(request: RasterRequest) -> Upload:
    """The file that a request sends.

    Raises:
        AccessError: The request names a path or a URL, to read or to write.
        RequestError: What it sends is not base64.
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
    if isinstance(request.data, Upload):
        return request.data.finish()
    return Upload.decode(request.data)
