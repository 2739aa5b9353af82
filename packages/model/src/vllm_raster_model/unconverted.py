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

from vllm_raster_model._stub_reader import Options, read_config, read_weights
from vllm_raster_model.config import RasterConfig
from vllm_raster_model.engine import PlainServingDefaults, VllmConfig, logger
from vllm_raster_model.engine_reading import FileLoader, ParserOverAnother, do_without_tokenizer
from vllm_raster_model.errors import ContractError, WeightsError

if TYPE_CHECKING:
    from vllm_raster_model.engine import ModelConfig

FOREIGN_ARCHITECTURE = "Terratorch"
"""What config.json of such a folder names: vLLM's wrapper around TerraTorch."""
ARCHITECTURE = "RasterForImageToImage"
"""The class of this package that serves it."""
SWITCH = "VLLM_RASTER_TERRATORCH"
"""The environment variable that chooses between the two, `native` and `wrapper`."""

_OVERRIDES = '--hf-overrides \'{"raster": {"input": {"mean": [...], "std": [...]}}}\''


def stands_in() -> str | None:
    """Tells whether, and then why, this package serves what names the wrapper.

    Raises:
        ContractError: The environment variable has a value that means nothing.
    """
    choice = os.environ.get(SWITCH, "")
    if choice not in ("", "native", "wrapper"):
        raise ContractError(f"{SWITCH} must be `native` or `wrapper`, got {choice!r}")
    if choice == "native":
        return f"{SWITCH}=native asks for it"
    if not choice and find_spec("terratorch") is None:
        return "TerraTorch is not installed"
    return None


def is_served_here() -> bool:
    """Tells the same without a word on what the environment variable may not be.

    That is said where it matters, when such a folder is read.
    """
    try:
        return stands_in() is not None
    except ContractError:
        return False


class UnconvertedConfig(RasterConfig):
    """What a folder of TerraTorch's would be converted to, and what was said when serving it.

    `raster` may be set to a part of a `raster` block, as `--hf-overrides` does after the folder
    was read: it is laid over what the folder says. So nothing is refused before that was done,
    and `problem` keeps what there is to refuse.

    Args:
        stored: The folder's config.json.
        reason: Why this package serves it.
        **kwargs: As for `RasterConfig`.

    Attributes:
        problem: Why the folder cannot be served with what was said so far; None if it can.
    """

    def __init__(
        self, stored: Mapping[str, Any] | None = None, reason: str = "", **kwargs: Any
    ) -> None:
        self._stored, self._said = dict(stored or {}), {}
        self.reason = reason
        self.problem: str | None = None
        super().__init__(**kwargs)
        if stored is not None:
            self.raster = {}

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "raster" and value is not None:
            self._said = _laid_over(self._said, value)
            self._read()
        else:
            super().__setattr__(name, value)

    def _read(self) -> None:
        self.__dict__.pop("contract", None)
        try:
            whole = read_config(self._stored, _options(self._said))
            super().__setattr__("raster", _laid_over(whole.raster or {}, self._said))
            self.vision_config = whole.vision_config
            self._derive()
            self.problem = None
        except ContractError as error:
            self.problem = str(error)

    def to_dict(self) -> dict[str, Any]:
        """As config.json of the converted checkpoint holds it."""
        whole = super().to_dict()
        for name in ("_stored", "_said", "reason", "problem"):
            whole.pop(name, None)
        return whole


def _options(said: Mapping[str, Any]) -> Options:
    """What a part of a `raster` block says of what the reader would otherwise ask for."""
    given = said.get("input", {})
    classes = said.get("output", {}).get("classes")
    return Options(
        **{name: given.get(name) for name in ("bands", "mean", "std", "scale", "offset")},
        nodata_fill=given.get("nodata_fill"),
        tile=said.get("tile", {}).get("size"),
        classes=None if classes is None else [one["name"] for one in classes],
    )


def _laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merges nested dictionaries; where both have a value, the one above counts."""
    merged = dict(below)
    for name, value in above.items():
        known = merged.get(name)
        both = isinstance(known, Mapping) and isinstance(value, Mapping)
        merged[name] = _laid_over(known, value) if both else value
    return merged


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
        return stored, UnconvertedConfig(
            stored, reason, architectures=stored["architectures"], name_or_path=str(model)
        )


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

    def read(
        self, files: list[Path], config: UnconvertedConfig
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """Gives the weights under the names that the served class has for them.

        Raises:
            WeightsError: There are several files, or the one is not of the network.
        """
        if len(files) != 1:
            raise WeightsError(
                f"One file of weights is served, got {sorted(one.name for one in files)}: move "
                "the others elsewhere, or convert the one with `vllm-raster-model convert`"
            )
        return read_weights(files[0], config)


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
            logger.info(
                "%s stands in for vLLM's wrapper around TerraTorch: %s.",
                ARCHITECTURE,
                config.reason,
            )
            do_without_tokenizer(model_config)
        super().verify_and_update_model_config(model_config)

    @classmethod
    def verify_and_update_config(cls, vllm_config: VllmConfig) -> None:
        """Also chooses the loader."""
        super().verify_and_update_config(vllm_config)
        load = vllm_config.load_config
        if isinstance(vllm_config.model_config.hf_config, UnconvertedConfig):
            if load.load_format in ("auto", "hf", "pt"):
                load.load_format = UnconvertedLoader.load_format
