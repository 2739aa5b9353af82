"""What vLLM asks for the IO processor: the entry point `raster` of `vllm.io_processor_plugins`."""

from vllm_raster_io.engine_version import require_vllm


def plugin_class() -> str:
    """The class path of the IO processor.

    Raises:
        EngineVersionError: vLLM is not of a version that fits; vLLM logs what to install.
    """
    require_vllm()
    return "vllm_raster_io.plugin.RasterIOProcessor"
