"""What a request asks for in words, and which of them the checkpoint knows."""

import re
from collections.abc import Sequence
from typing import Protocol

from vllm_raster_io.contract import InstructionContract, RasterContract
from vllm_raster_io.errors import RequestError
from vllm_raster_io.quoting import quoted
from vllm_raster_io.requests import RasterRequest

_SPECIAL_WORDS = ("<image>", "<row>")
"""What stands for the image in a prompt, where the checkpoint's template puts it."""
_NAMED_AT_MOST = 5
_WORD_OR_SIGNS = re.compile(r"\w+|[^\w\s]+")
_DIGIT = re.compile(r"[0-9a-f]", re.IGNORECASE)


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
    words = _words(asked)
    unknown = [] if tokenizer is None else _unknown(words, tokenizer, known)
    if unknown == words:
        raise RequestError(
            f"`prompt` has no word that the checkpoint knows, got {_listed(words)}. It can be "
            f"asked for example: {known.examples()}"
        )
    if not any(map(_says_something, unknown)):
        return asked, []
    return asked, [
        f"The checkpoint has not learnt {_listed(unknown)} of `prompt`: any other that it has "
        "not learnt would give the same map"
    ]


def _words(text: str) -> list[str]:
    return list(dict.fromkeys(_WORD_OR_SIGNS.findall(text)))


def _says_something(word: str) -> bool:
    return any(map(str.isalnum, word))


def _unknown(words: Sequence[str], tokenizer: Tokenizer, known: InstructionContract) -> list[str]:
    """The words that the tokenizer has no token for, or has it for another reason."""
    token = getattr(tokenizer, "unk_token_id", None)
    if token is None:
        return []
    taught = " ".join([known.template, *(one for way in known.wordings.values() for one in way)])
    # Every tokenizer knows the digits 0 to f, in which keys are written.
    taught_digits = {one.lower() for one in _words(taught) if _DIGIT.fullmatch(one)}

    def is_unknown(word: str) -> bool:
        if _DIGIT.fullmatch(word):
            return word.lower() not in taught_digits
        return token in tokenizer.encode(word, add_special_tokens=False)

    return [one for one in words if is_unknown(one)]


def _listed(words: Sequence[str]) -> str:
    more = [f"{len(words) - _NAMED_AT_MOST} more"] if len(words) > _NAMED_AT_MOST else []
    return ", ".join([*map(quoted, words[:_NAMED_AT_MOST]), *more])
