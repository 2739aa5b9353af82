"""How much of what a client sent goes into a message about it: a few dozen characters."""

from reprlib import Repr

_LONGEST = 60
_repr = Repr()
_repr.maxstring = _repr.maxother = _LONGEST
_URL = "://"


def quoted(value: object) -> str:
    """A value as Python writes it; of a long one the beginning, looked at no further."""
    return cut(_repr.repr(value))


def cut(text: str, longest: int = _LONGEST) -> str:
    """A text, or its beginning; a URL, which may hold secrets, is cut off after its scheme."""
    before, found, _ = text.partition(_URL)
    if found:
        text = f"{before}{found}..."
    return text if len(text) <= longest else text[: longest - 3] + "..."
