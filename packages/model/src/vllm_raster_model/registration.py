"""What vLLM runs when it starts: the entry point `raster` of `vllm.general_plugins`."""

import logging
import os

from vllm_raster_model.engine_version import require_vllm
from vllm_raster_model.errors import EngineVersionError

ARCHITECTURES = {
    "RasterForImageToImage": "vllm_raster_model.plain:RasterForImageToImage",
    "InstructedRasterForImageToImage": (
        "vllm_raster_model.instructed:InstructedRasterForImageToImage"
    ),
}
"""Class path of each served class by its name in config.json."""


def register() -> None:
    """Makes the classes, configuration and processor of this package known.

    vLLM calls it in each of its processes, and may call it more than once. Where vLLM is not
    of a version that fits, it says so in the log and leaves other models alone.
    """
    try:
        require_vllm()
    except EngineVersionError as error:
        logging.getLogger("vllm.raster.model").error(
            "Raster checkpoints cannot be served. %s", error
        )
        return
    register_with_transformers()
    _register_with_vllm()


def register_with_transformers() -> None:
    """Lets `AutoConfig` and `AutoProcessor` read checkpoints; needs no vLLM."""
    import vllm_raster_model.processor  # noqa: F401 - which does it


def _register_with_vllm() -> None:
    from vllm import ModelRegistry
    from vllm.model_executor.models.config import MODELS_CONFIG_MAP

    from vllm_raster_model.engine_adapters import let_adapters_take_turns
    from vllm_raster_model.engine_budget import let_long_prompts_have_steps
    from vllm_raster_model.engine_defaults import ServingDefaults
    from vllm_raster_model.engine_reading import (
        keep_class,
        know_variable,
        load_weights_with,
        read_configurations_with,
    )
    from vllm_raster_model.engine_requests import check_what_is_asked_for
    from vllm_raster_model.precision import SWITCH as PRECISION_SWITCH
    from vllm_raster_model.unconverted import (
        FOREIGN_ARCHITECTURE,
        SWITCH,
        PlainOrUnconvertedDefaults,
        UnconvertedConfigParser,
        UnconvertedLoader,
        WrapperDefaults,
        is_served_here,
    )

    known = ModelRegistry.get_supported_archs()
    for architecture, path in ARCHITECTURES.items():
        if architecture not in known:
            ModelRegistry.register_model(architecture, path)
        plain = architecture == "RasterForImageToImage"
        MODELS_CONFIG_MAP[architecture] = PlainOrUnconvertedDefaults if plain else ServingDefaults
    check_what_is_asked_for()
    let_adapters_take_turns()
    let_long_prompts_have_steps()
    # Those of vllm-raster-io, too, which refuses names that it does not know by itself.
    ours = [name for name in os.environ if name.startswith("VLLM_RASTER_")]
    for variable in (SWITCH, PRECISION_SWITCH, *ours):
        know_variable(variable)
    read_configurations_with(UnconvertedConfigParser)
    load_weights_with(UnconvertedLoader)
    if is_served_here():
        keep_class(FOREIGN_ARCHITECTURE, ARCHITECTURES["RasterForImageToImage"])
        MODELS_CONFIG_MAP[FOREIGN_ARCHITECTURE] = PlainOrUnconvertedDefaults
    else:
        MODELS_CONFIG_MAP[FOREIGN_ARCHITECTURE] = WrapperDefaults
