"""What may go wrong with a raster, as errors under one base."""


class RasterIOError(ValueError):
    """Base of all errors of this package."""


class TilingError(RasterIOError):
    """A scene cannot be cut, or its windows cannot be put together, as asked."""
