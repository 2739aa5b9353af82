"""The other part of the seam: how vLLM reads the folder of a checkpoint.

Written for vLLM 0.32, read against 0.33.
"""

import os
import time
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from vllm import ModelRegistry, envs
from vllm.config import LoadConfig
from vllm.model_executor.model_loader import _LOAD_FORMAT_TO_MODEL_LOADER, DefaultModelLoader
from vllm.transformers_utils.config import _CONFIG_FORMAT_TO_CONFIG_PARSER
from vllm.transformers_utils.config_parser_base import ConfigParserBase

from vllm_raster_model.engine import logger

if TYPE_CHECKING:
    from vllm.config import ModelConfig


class ParserOverAnother(ConfigParserBase):
    """A parser of config.json that leaves to the one below what it does not read itself."""

    inner: type[ConfigParserBase]


def read_configurations_with(parser: type[ParserOverAnother]) -> None:
    """Puts a parser over the one that is there; may be called twice.

    Not by vLLM's `register_config_parser`, which warns of it whatever is served.
    """
    there = _CONFIG_FORMAT_TO_CONFIG_PARSER["hf"]
    if there is not parser:
        parser.inner = there
        _CONFIG_FORMAT_TO_CONFIG_PARSER["hf"] = parser


class FileLoader(DefaultModelLoader):
    """A loader that finds, or downloads, files of weights as vLLM does, and reads them itself."""

    load_format: str
    patterns: tuple[str, ...]
    """Names of files of weights; those of the first one that fits any are downloaded."""

    def __init__(self, load_config: LoadConfig) -> None:
        # To vLLM's own code it is a format like any other.
        super().__init__(replace(load_config, load_format="pt"))

    def get_all_weights(
        self, model_config: "ModelConfig", model: nn.Module
    ) -> Generator[tuple[str, torch.Tensor], None, None]:
        """Gives the weights under the names that the model has for them."""
        folder, *_ = self._prepare_weights(
            model_config.model, None, model_config.revision, True, list(self.patterns)
        )
        self.counter_before_loading_weights = time.perf_counter()
        yield from self.read(Path(folder), model_config.hf_config)

    def read(self, folder: Path, config: Any) -> Iterator[tuple[str, torch.Tensor]]:
        """Reads weights out of this folder, for what the configuration describes."""
        raise NotImplementedError


def load_weights_with(loader: type[FileLoader]) -> None:
    """Makes a loader known by its `load_format`; may be called twice.

    Not by vLLM's `register_model_loader`, which tells of it whatever is served.
    """
    _LOAD_FORMAT_TO_MODEL_LOADER[loader.load_format] = loader


def keep_class(architecture: str, path: str) -> None:
    """Registers a class for good: who registers another under that name is not heard.

    TerraTorch's own plugin does, and vLLM calls plugins in the order in which it finds them.
    """
    register = type(ModelRegistry).register_model

    def register_another(name: str, model: type[nn.Module] | str) -> None:
        if name != architecture:
            register(ModelRegistry, name, model)

    register(ModelRegistry, architecture, path)
    ModelRegistry.register_model = register_another


def know_variable(name: str) -> None:
    """Keeps vLLM from warning of an environment variable of ours, which it takes for its own."""
    envs.environment_variables.setdefault(name, lambda: os.environ.get(name))


def do_without_tokenizer(model_config: "ModelConfig") -> None:
    """Starts as with `--skip-tokenizer-init` where vLLM found no tokenizer.

    Without one it says that it is in text-only mode, and would fail.
    """
    if model_config.skip_tokenizer_init or model_config.supports_multimodal_inputs:
        return
    logger.info("Not in text-only mode: this checkpoint needs no tokenizer.")
    model_config.skip_tokenizer_init = True
    model_config._supports_multimodal_inputs_cache = {}
