"""Serving a folder as TerraTorch publishes it, without converting it and without TerraTorch.

vLLM serves such a folder by a wrapper around TerraTorch. Where TerraTorch is not installed, or
where it is asked for, this package reads the folder itself, as its converter would, and serves
what it would be converted to.
"""

import os
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedConfig

from vllm_raster_model.checkpoints.foreign import ForeignCheckpoint
from vllm_raster_model.checkpoints.sources import find_source
from vllm_raster_model.engine import VllmConfig, logger
from vllm_raster_model.engine_defaults import PlainServingDefaults, VerifyAndUpdateConfig
from vllm_raster_model.engine_reading import FileLoader, ParserOverAnother, do_without_tokenizer
from vllm_raster_model.errors import ContractError
from vllm_raster_model.unconverted_config import UnconvertedConfig

if TYPE_CHECKING:
    from vllm.config import ModelConfig

FOREIGN_ARCHITECTURE = "Terratorch"
"""What config.json of such a folder names: vLLM's wrapper around TerraTorch."""
ARCHITECTURE = "RasterForImageToImage"
"""The class of this package that serves it."""
SWITCH = "VLLM_RASTER_TERRATORCH"
"""The environment variable that chooses between the two, `native` and `wrapper`."""


def stands_in() -> str | None:
    """Tells whether, and then why, this package serves what names the wrapper.

    Raises:
        ContractError: The environment variable has a value that means nothing, or asks for the
            wrapper where TerraTorch is not installed.
    """
    choice = os.environ.get(SWITCH, "")
    if choice not in ("", "native", "wrapper"):
        raise ContractError(f"{SWITCH} must be `native` or `wrapper`, got {choice!r}")
    if choice == "native":
        return f"{SWITCH}=native asks for it"
    if find_spec("terratorch") is not None:
        return None
    if choice == "wrapper":
        raise ContractError(
            f"{SWITCH}=wrapper asks for vLLM's wrapper, which needs TerraTorch, and it is not "
            "installed. Install terratorch, or leave the variable out"
        )
    return "TerraTorch is not installed"


def is_served_here() -> bool:
    """Tells the same without a word on what the environment variable may not be.

    That is said where it matters, when such a folder is read.
    """
    try:
        return stands_in() is not None
    except ContractError:
        return False


class UnconvertedConfigParser(ParserOverAnother):
    """Reads config.json as vLLM does, but for folders of TerraTorch's that are served here."""

    def parse(
        self,
        model: str | Path,
        trust_remote_code: bool,
        revision: str | None = None,
        code_revision: str | None = None,
        **kwargs: Any,
    ) -> tuple[dict[str, Any], PreTrainedConfig]:
        """Gives what config.json holds, and the configuration that is made of it."""
        overrides = kwargs.get("hf_overrides")
        try:
            stored, config = self.inner().parse(
                model, trust_remote_code, revision, code_revision, **kwargs
            )
        except ImportError:
            # transformers takes the folder for one of timm's, which comes with TerraTorch.
            stored, _ = PreTrainedConfig.get_config_dict(
                model, revision=revision, token=kwargs.get("token")
            )
            if (reason := _reason(stored, overrides)) is None:
                raise
        else:
            if (reason := _reason(stored, overrides)) is None:
                return stored, config
        config = UnconvertedConfig(stored, reason, architectures=stored["architectures"])
        config.name_or_path = str(model)
        return stored, config


def _reason(stored: Mapping[str, Any], overrides: object) -> str | None:
    """Why this package serves the folder whose config.json is given; None if it does not."""
    if stored.get("architectures") != [FOREIGN_ARCHITECTURE]:
        return None
    if isinstance(overrides, Mapping) and overrides.get("architectures") == [ARCHITECTURE]:
        return "--hf-overrides asks for it"
    return stands_in()


class UnconvertedLoader(FileLoader):
    """Reads the weights as the converter does."""

    load_format = "terratorch"
    patterns = ("*.pt", "*.ckpt", "*.pth", "*.bin", "*.safetensors")

    def read(self, folder: Path, config: UnconvertedConfig) -> Iterator[tuple[str, torch.Tensor]]:
        """Gives the weights under the names that the served class has for them.

        Raises:
            WeightsError: They are not those of the network, or no weights.
            SourceError: There is more than one file of them.
        """
        source, facts = config.source(find_source(folder).weights), config.facts()
        return ForeignCheckpoint(source, facts, config).weights()


class PlainOrUnconvertedDefaults(PlainServingDefaults):
    """Says of an unconverted folder that it is one, and has it read as such."""

    @classmethod
    def verify_and_update_model_config(cls, model_config: "ModelConfig") -> None:
        """Also does without a tokenizer, which such a folder has not.

        Raises:
            ContractError: Neither the folder nor the command line says all that is needed.
        """
        config = model_config.hf_config
        if isinstance(config, UnconvertedConfig):
            if config.problem is not None:
                raise ContractError(config.problem)
            _refuse_their_plugin(model_config.io_processor_plugin)
            logger.info(
                "%s stands in for vLLM's wrapper around TerraTorch: %s.",
                ARCHITECTURE,
                config.reason,
            )
            for note in config.notes:
                logger.warning("%s", note)
            do_without_tokenizer(model_config)
        super().verify_and_update_model_config(model_config)

    @classmethod
    def verify_and_update_config(cls, vllm_config: VllmConfig) -> None:
        """Also chooses the loader."""
        super().verify_and_update_config(vllm_config)
        unconverted = isinstance(vllm_config.model_config.hf_config, UnconvertedConfig)
        if unconverted and vllm_config.load_config.load_format in ("auto", "hf", "pt"):
            vllm_config.load_config.load_format = UnconvertedLoader.load_format


class WrapperDefaults(VerifyAndUpdateConfig):
    """Says of such a folder that vLLM's wrapper serves it, where it does."""

    @classmethod
    def verify_and_update_model_config(cls, model_config: "ModelConfig") -> None:
        """Says so, and what to do to have it otherwise.

        Raises:
            ContractError: One flag asks for the wrapper, another for this package.
        """
        if isinstance(model_config.hf_config, UnconvertedConfig):
            raise ContractError(
                "--model-impl terratorch asks for vLLM's wrapper around TerraTorch, and "
                "--hf-overrides for this package. Leave out one of the two"
            )
        asked = os.environ.get(SWITCH) == "wrapper"
        logger.info(
            "vLLM's wrapper around TerraTorch serves this folder: %s. With %s=native, %s does.",
            f"{SWITCH}=wrapper asks for it" if asked else "TerraTorch is installed",
            SWITCH,
            ARCHITECTURE,
        )


def _refuse_their_plugin(name: str | None) -> None:
    if name is not None and name.startswith("terratorch"):
        raise ContractError(
            f"--io-processor-plugin {name} works with vLLM's wrapper around TerraTorch only, and "
            f"{ARCHITECTURE} serves this folder. Say --io-processor-plugin raster, or leave the "
            "flag out"
        )
