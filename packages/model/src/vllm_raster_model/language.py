"""The language model's configuration, and keys of configurations that were meant to be others."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from transformers import CONFIG_MAPPING, PreTrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from vllm_raster_model.errors import ContractError, telling_of

_ALIKE = 0.8
"""From here on, of 1, two keys are so much alike that one is taken for the other, misspelt."""
_TOKENS = {
    f"{name}_token{end}"
    for name in ("bos", "eos", "pad", "sep", "unk", "cls", "mask", "decoder_start", "forced_bos")
    for end in ("", "_id")
}
_ROPE = {
    "rope_type",
    "rope_theta",
    "factor",
    "original_max_position_embeddings",
    "partial_rotary_factor",
    "attention_factor",
    "beta_fast",
    "beta_slow",
    "short_factor",
    "long_factor",
    "low_freq_factor",
    "high_freq_factor",
    "mscale",
    "mscale_all_dim",
    "mrope_section",
}
"""What positions may be told by, in any of transformers' kinds."""


def language_config(given: Any) -> PreTrainedConfig:
    """The configuration of a causal language model.

    Args:
        given: As config.json has it under `text_config`, or as transformers made it.

    Raises:
        ContractError: It is of no causal language model, has a misspelt key or an impossible
            value.
    """
    config: PreTrainedConfig = given if isinstance(given, PreTrainedConfig) else _parsed(given)
    kind = config.model_type
    if kind not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise ContractError(
            f"text_config has model_type {kind!r}, which is no causal language model"
        )
    if getattr(config, "is_causal", True) is False or getattr(
        config, "use_bidirectional_attention", False
    ):
        # An image's cells would read what stands behind it, such as a request's key.
        raise ContractError(
            f"text_config has is_causal={getattr(config, 'is_causal', True)} and "
            "use_bidirectional_attention="
            f"{getattr(config, 'use_bidirectional_attention', False)}: the language model must "
            "be causal"
        )
    return config


def refuse_misspelt(where: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuses keys that are all but known ones: transformers would keep them and say nothing.

    Others are left alone, for published configurations have keys of their own that nothing reads.

    Args:
        where: What has the keys, for the message.
        given: The keys that it has.
        known: The keys that it may have.

    Raises:
        ContractError: Names each misspelt key, with the one that was meant.
    """
    usual = PreTrainedConfig().to_dict().keys() | _TOKENS
    own = set(known) - usual
    meant = {
        key: close[0]
        for key in sorted(set(given) - own - usual)
        if (close := get_close_matches(key, own, 1, _ALIKE))
        # A longer or shorter name is another: `original_max_position_embeddings`.
        and not key.endswith(f"_{close[0]}")
        and not close[0].endswith(f"_{key}")
    }
    if meant:
        told = ", ".join(f"{key!r}, meant is {other!r}" for key, other in meant.items())
        raise ContractError(f"{where} has the unknown keys: {told}")


def _parsed(given: Any) -> PreTrainedConfig:
    kind = given.get("model_type") if isinstance(given, Mapping) else None
    if kind is None:
        raise ContractError(
            "config.json needs `text_config`, the language model's configuration with its "
            f"`model_type`, got {given!r:.80}"
        )
    if not isinstance(kind, str) or kind not in CONFIG_MAPPING:
        raise ContractError(
            f"text_config has model_type {kind!r}, which transformers does not know"
        )
    config_class = CONFIG_MAPPING[kind]
    with telling_of("text_config"):
        known = config_class().to_dict().keys() | config_class.attribute_map.keys()
        refuse_misspelt("text_config", given, known)
        for name in ("rope_parameters", "rope_scaling"):
            _refuse_misspelt_positions(f"text_config.{name}", given.get(name))
        config: PreTrainedConfig = config_class(**given)
    return config


def _refuse_misspelt_positions(where: str, given: Any) -> None:
    if not isinstance(given, Mapping):
        return
    refuse_misspelt(where, given, _ROPE)
    for name, one in given.items():  # some models have them by the kind of their layers
        _refuse_misspelt_positions(f"{where}.{name}", one)
