"""What a request asks for in words."""

from vllm_raster_io.contract import RasterContract
from vllm_raster_io.errors import RequestError
from vllm_raster_io.requests import RasterRequest

_SPECIAL_WORDS = ("<image>", "<row>")
"""What stands for the image in a prompt, where the checkpoint's template puts it."""


def find_instruction(request: RasterRequest, contract: RasterContract) -> str | None:
    """What a request asks for in words, which it must where there is a language model.

    Raises:
        RequestError: It must and does not, or there is none, or the words cannot be.
    """
    known, asked = contract.instructions, request.prompt
    if known is None:
        if asked is not None:
            raise RequestError(
                "`prompt` is refused: this checkpoint has no language model, it always maps "
                f"{contract.output.kind}. Leave it out"
            )
        return None
    if asked is None or not asked.strip():
        raise RequestError(
            "`prompt` must say what to map, for this checkpoint maps what it is told. "
            f"It was trained on, among others: {known.examples()}"
        )
    if taken := [word for word in _SPECIAL_WORDS if word in asked]:
        raise RequestError(
            f"`prompt` may not hold {' or '.join(taken)}, which stands for a part of the image. "
            "Say in words what to map; the image goes to its place by itself"
        )
    return asked
