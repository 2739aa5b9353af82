"""The exceptions of this package: one small family under one base."""

from collections.abc import Iterator
from contextlib import contextmanager


class RasterModelError(ValueError):
    """Anything this package refuses. A `ValueError`, which vLLM answers with 400, not 500."""


class ContractError(RasterModelError):
    """The checkpoint's configuration does not say what is needed, or contradicts itself."""


class ImageItemError(RasterModelError):
    """An image item has the wrong shape, type or fields for this checkpoint."""


class WeightsError(RasterModelError):
    """The checkpoint's weights are not those of the network that its configuration names."""


class SourceError(RasterModelError):
    """What is to be converted cannot be read, or is nothing that can be served."""


class EngineVersionError(ImportError):
    """vLLM is missing or of a version that this package was not written for."""


@contextmanager
def telling_of(block: str) -> Iterator[None]:
    """Says which part of config.json an error is about that names none.

    Args:
        block: Name of the part.

    Raises:
        ContractError: In place of what is none of this family.
    """
    try:
        yield
    except RasterModelError:
        raise
    except Exception as error:
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        raise ContractError(f"{block} is not usable: {kind}{error}") from error
