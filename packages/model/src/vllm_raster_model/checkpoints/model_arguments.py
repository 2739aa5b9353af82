"""From the arguments of TerraTorch's model factories to a network's configuration."""

from dataclasses import dataclass
from typing import Any

from vllm_raster_model.checkpoints.backbones import Backbone, read_backbone
from vllm_raster_model.checkpoints.settings import MOST, Settings, shown
from vllm_raster_model.errors import ContractError

_FACTORIES = ("EncoderDecoderFactory", "PrithviModelFactory")
_PARTS = ("backbone", "decoder", "num_classes", "num_outputs", "necks", "rescale")
_UNUSED = ("pretrained", "checkpoint_path", "in_channels", "aux_decoders")
_MOST_ARGUMENTS = 10_000
_OLD_NECKS = "post_backbone_ops"
_FINE_TUNED_FRAMES = 1
"""What TerraTorch's factories take for granted, whatever the pretraining had."""


@dataclass(frozen=True)
class FineTune:
    """A network as a TerraTorch configuration describes it.

    Attributes:
        backbone: Its encoder.
        necks: What stands between encoder and decoder, in TerraTorch's form; where there is none,
            the encoder itself lays its tokens out as maps.
        decoder: Its name and arguments.
        head: Its arguments.
        rescale: Whether the scores are brought to the size of the window.
        num_classes: As the configuration says, and so the next one.
        num_outputs: Values of a regression.
        states_bands: Whether the configuration names the bands, or leaves it to the backbone.
    """

    backbone: Backbone
    necks: list[dict[str, Any]]
    decoder: dict[str, Any]
    head: dict[str, Any]
    rescale: bool
    num_classes: int | None
    num_outputs: int | None
    states_bands: bool


def read_model(factory: str, arguments: Settings) -> FineTune:
    """Reads `model_args`.

    Args:
        factory: The name of the factory that they are for.
        arguments: All of them.

    Raises:
        ContractError: A part is not supported, or an argument is not known.
    """
    if factory.rpartition(".")[2] not in _FACTORIES:
        raise ContractError(
            f"The model factory {shown(factory)} is not supported; there are {_FACTORIES}"
        )
    for key in ("peft_config", "backbone_peft_config"):
        if arguments.get(key):
            raise ContractError(
                f"{arguments.path(key)}: adapters are not supported; merge them into the network "
                "first"
            )
    arguments = _in_new_form(arguments)
    prefixes = ("backbone_", "decoder_", "head_")
    unprefixed = [k for k in arguments.values if not k.startswith(prefixes)]
    Settings(arguments.where, dict.fromkeys(unprefixed)).refuse_unknown(
        (*_PARTS, *_UNUSED, "peft_config"), "not supported"
    )
    _check_sizes(arguments)
    name, decoder = arguments.text("backbone"), arguments.text("decoder")
    if name is None or decoder is None:
        raise ContractError(f"{arguments.where} must name a backbone and a decoder")
    backbone_arguments, head = arguments.starting("backbone_"), arguments.starting("head_")
    counts = {
        key: arguments.whole(key) or head.whole(key) for key in ("num_classes", "num_outputs")
    }
    return FineTune(
        backbone=read_backbone(name, backbone_arguments, _FINE_TUNED_FRAMES),
        necks=[_neck(arguments, one) for one in arguments.items("necks") or []],
        decoder={**arguments.starting("decoder_").values, "name": decoder.rpartition(".")[2]},
        head={key: value for key, value in head.values.items() if key not in counts},
        rescale=arguments.flag("rescale", True),
        **counts,
        states_bands="bands" in backbone_arguments or "model_bands" in backbone_arguments,
    )


def _check_sizes(arguments: Settings) -> None:
    """Refuses numbers that no network has, before anything is made of them."""
    left, seen = list(arguments.values.items()), 0
    while left:
        key, value = left.pop()
        seen += 1
        if seen > _MOST_ARGUMENTS:
            raise ContractError(f"{arguments.where} has more than {_MOST_ARGUMENTS} values")
        if isinstance(value, (list, tuple)):
            left += [(key, one) for one in value[:_MOST_ARGUMENTS]]
        elif isinstance(value, dict):
            left += [(f"{key}.{name}", one) for name, one in value.items()]
        elif isinstance(value, (int, float)) and not abs(value) <= MOST:
            raise ContractError(f"{arguments.where}.{key} is out of all range: {shown(value)}")


def _in_new_form(arguments: Settings) -> Settings:
    """Gives the old factory's own arguments the names that the new one has for them."""
    values = dict(arguments.values)
    for old, new in (
        ("bands", "backbone_bands"),
        ("num_frames", "backbone_num_frames"),
        (_OLD_NECKS, "necks"),
    ):
        if old in values:
            value = values.pop(old)
            if values.setdefault(new, value) != value:
                raise ContractError(f"{arguments.where} has {old} and {new}, which differ")
    return Settings(arguments.where, values)


def _neck(arguments: Settings, value: Any) -> dict[str, Any]:
    neck = Settings.of(f"{arguments.where}.necks", value)
    name = neck.text("name")
    if name is None:
        raise ContractError(f"{neck.where} must each have a name, got {shown(value)}")
    return {**neck.values, "name": name.rpartition(".")[2]}
