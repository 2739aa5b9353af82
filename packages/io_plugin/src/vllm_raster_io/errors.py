"""The exceptions of this package: what a client did wrong under one base, and two others."""


class RasterIOError(ValueError):
    """What a request asks cannot be done. A `ValueError`, which vLLM answers with 400."""


class RequestError(RasterIOError):
    """A request has a wrong field, or fields that contradict one another."""


class AccessError(RasterIOError):
    """A request asks to read or write where it may not."""


class LimitError(RasterIOError):
    """A request would take more than the server gives to one."""


class RasterError(RasterIOError):
    """A raster cannot be read, or is not what the checkpoint takes."""


class TilingError(RasterIOError):
    """A scene cannot be cut, or its windows cannot be put together, as asked."""


class ContractError(RasterIOError):
    """The checkpoint's `raster` block does not say what this plugin needs to know."""


class SettingsError(RasterIOError):
    """What whoever starts the server allows its clients is said in a way that cannot be."""


class ServingError(RuntimeError):
    """The server did something wrong, not the client; answered with 500."""


class EngineVersionError(ImportError):
    """vLLM is missing or of a version that this package was not written for."""


class ServiceError(RuntimeError):
    """A server could not be started or reached, or did not answer with a map."""
