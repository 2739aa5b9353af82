"""From the names that weights have in TerraTorch's files to those of the networks here."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from vllm_raster_model.errors import WeightsError

_WRAPPERS = re.compile(r"(^|\.)(_orig_mod|_timm_module|_forward_module)\.")
"""What compilers and older versions put between names."""
_OUTER = ("module.", "model.")
"""What trainers put in front of names."""
_BESIDE = re.compile(
    r"^(criterion|train_metrics|val_metrics|test_metrics|metrics|loss|train_loss|val_loss"
    r"|train_loss_handler|val_loss_handler|test_loss_handler)\."
)
_MEASURED = (".running_mean", ".running_var", ".num_batches_tracked")
"""What batch norm keeps beside its parameters."""
_DECODER_OF_V1 = re.compile(r"(^|\.)(decoder_\w+|mask_token)(\.|$)|_dec\.")


@dataclass
class Named:
    """The names of a file's weights in a network, and what was left out.

    Attributes:
        weights: The name in the file by that in the network.
        dropped: Names that are known and not needed, by the reason.
    """

    weights: dict[str, str]
    dropped: dict[str, list[str]] = field(default_factory=dict)

    def drop(self, reason: str, name: str) -> None:
        """Notes a name that is left out."""
        self.dropped.setdefault(reason, []).append(name)

    @property
    def notes(self) -> list[str]:
        """What was left out, for people."""
        return [f"Left out {len(one)}: {reason}" for reason, one in self.dropped.items()]


def fine_tune_names(stored: Mapping[str, object], coordinates: tuple[str, ...]) -> Named:
    """Names the weights of a fine-tuned network.

    Args:
        stored: By the names that they have in the file.
        coordinates: What the network is to be told; encodings of others are left out.

    Raises:
        WeightsError: Two weights would have one name.
    """
    named = Named({})
    for name in stored:
        plain = _without_wrappers(name)
        if _BESIDE.match(plain):
            named.drop("losses and metrics of the training", name)
            continue
        plain = _without_outer(plain)
        if plain.startswith("aux_heads."):
            head = plain.split(".")[1]
            named.drop(f"the auxiliary head {head!r}, which only training uses", name)
        elif not _drop_of_encoder(named, name, plain, coordinates):
            _take(named, plain, name)
    return named


def backbone_names(
    stored: Mapping[str, object], coordinates: tuple[str, ...], *, with_decoder: bool
) -> Named:
    """Names the weights of a bare Prithvi; those of version 1 have no `encoder.` in front.

    Args:
        stored: By the names that they have in the file.
        coordinates: What the network is to be told; encodings of others are left out.
        with_decoder: Whether the masked autoencoder's decoder is wanted too.

    Raises:
        WeightsError: Two weights would have one name.
    """
    named = Named({})
    for name in stored:
        plain = _without_wrappers(name)
        plain = _without_outer(plain)
        if not plain.startswith(("encoder.", "decoder.")):
            side = "decoder" if _DECODER_OF_V1.search(plain) else "encoder"
            plain = f"{side}.{plain}"
        if plain.startswith("decoder.") and not with_decoder:
            named.drop("the masked autoencoder's decoder", name)
        elif not _drop_of_encoder(named, name, plain, coordinates):
            _take(named, plain, name)
    return named


def _without_wrappers(name: str) -> str:
    while (plain := _WRAPPERS.sub(r"\1", name)) != name:
        name = plain
    return name


def _without_outer(name: str) -> str:
    while name.startswith(_OUTER):
        name = name.partition(".")[2]
    return name


def _drop_of_encoder(named: Named, name: str, plain: str, coordinates: tuple[str, ...]) -> bool:
    """Leaves out what is computed anew, what only pretraining uses, and what is not told."""
    if plain in ("encoder.pos_embed", "decoder.decoder_pos_embed"):
        named.drop("the code of positions, which is computed", name)
    elif plain in ("encoder.mask_token", "decoder.mask_token"):
        named.drop("the token for masked patches, for nothing is masked", name)
    elif "temporal_embed_" in plain and "time" not in coordinates:
        named.drop("the encoding of dates, which the network is not told", name)
    elif "location_embed_" in plain and "location" not in coordinates:
        named.drop("the encoding of places, which the network is not told", name)
    else:
        return False
    return True


def _take(named: Named, plain: str, name: str) -> None:
    if plain in named.weights:
        raise WeightsError(f"{name!r} and {named.weights[plain]!r} are both {plain!r}")
    named.weights[plain] = name


def count_parameters(weights: Mapping[str, torch.Tensor]) -> int:
    """Numbers that training has set: all but what batch norm measured."""
    return sum(one.numel() for name, one in weights.items() if not name.endswith(_MEASURED))
