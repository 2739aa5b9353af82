"""What a request asks for in words, and which of them the checkpoint knows."""

import re
from collections.abc import Sequence
from typing import Protocol

from vllm_raster_io.contract import RasterContract
from vllm_raster_io.errors import RequestError
from vllm_raster_io.quoting import quoted
from vllm_raster_io.requests import RasterRequest

_SPECIAL_WORDS = ("<image>", "<row>")
"""What stands for the image in a prompt, where the checkpoint's template puts it."""
_NAMED_AT_MOST = 5
_WORD_OR_SIGNS = re.compile(r"\w+|[^\w\s]+")


class Tokenizer(Protocol):
    """What is needed of a tokenizer; `unk_token_id` as well, if there is a token for that."""

    def encode(self, text: str, *, add_special_tokens: bool) -> Sequence[int]:
        """The tokens of a text."""
        ...


def find_instruction(
    request: RasterRequest, contract: RasterContract, tokenizer: Tokenizer | None
) -> tuple[str | None, list[str]]:
    """What a request asks for in words, which it must where there is a language model.

    Returns:
        The words, and what is to be noted of them.

    Raises:
        RequestError: There are words for a checkpoint that reads none, or none for one that does,
            or none that it knows, or some stand for a part of the image.
    """
    known, asked = contract.instructions, request.prompt
    if known is None:
        if asked is not None:
            raise RequestError(
                "`prompt` is refused: this checkpoint has no language model, it always maps "
                f"{contract.output.kind}. Leave it out"
            )
        return None, []
    if asked is None or not asked.strip():
        raise RequestError(
            "`prompt` must say what to map, for this checkpoint maps what it is told. It can be "
            f"asked for example: {known.examples()}"
        )
    if taken := [word for word in _SPECIAL_WORDS if word in asked]:
        raise RequestError(
            f"`prompt` may not hold {' or '.join(taken)}, which stands for a part of the image. "
            "Say in words what to map; the image goes to its place by itself"
        )
    words = list(dict.fromkeys(_WORD_OR_SIGNS.findall(asked)))
    unknown = [] if tokenizer is None else [one for one in words if _is_unknown(one, tokenizer)]
    if unknown == words:
        raise RequestError(
            f"`prompt` has no word that the checkpoint knows, got {_listed(words)}. It can be "
            f"asked for example: {known.examples()}"
        )
    if not unknown:
        return asked, []
    return asked, [
        f"The checkpoint does not know {_listed(unknown)} of `prompt`: all words that it does not "
        "know are one and the same to it"
    ]


def _is_unknown(word: str, tokenizer: Tokenizer) -> bool:
    unknown = getattr(tokenizer, "unk_token_id", None)
    return unknown in tokenizer.encode(word, add_special_tokens=False)


def _listed(words: Sequence[str]) -> str:
    more = [f"{len(words) - _NAMED_AT_MOST} more"] if len(words) > _NAMED_AT_MOST else []
    return ", ".join([*map(quoted, words[:_NAMED_AT_MOST]), *more])
