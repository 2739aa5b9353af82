"""Who may read and write what: where a request's raster may come from, and where a map may go."""

import base64
import binascii

from vllm_raster_io.errors import AccessError, RequestError
from vllm_raster_io.limits import LIMITS
from vllm_raster_io.requests import RasterRequest


def read_source(request: RasterRequest) -> bytes:
    """The bytes of the file that a request sends.

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
    return decode(request.data)


def decode(text: str) -> bytes:
    """Decodes base64, with or without line breaks.

    Raises:
        RequestError: It is empty or not base64.
        LimitError: It is larger than allowed.
    """
    LIMITS.check("encoded_bytes", len(text))
    if "\n" in text or "\r" in text:
        text = text.replace("\n", "").replace("\r", "")
    try:
        decoded = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RequestError(
            f"`data` must be a file in base64, but is not: {str(error).lower()}"
        ) from None
    if not decoded:
        raise RequestError("`data` is empty, but must be a file in base64")
    return decoded
