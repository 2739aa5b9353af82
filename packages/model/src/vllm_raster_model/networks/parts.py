"""Parts of a dense network: how they are named, and the features that pass between them.

A checkpoint names its necks, decoder and head the way TerraTorch's configuration does:
`{"name": "UperNetDecoder", "channels": 256}`. Names, arguments and defaults are TerraTorch's.
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from torch import nn

from vllm_raster_model.errors import ContractError


@dataclass(frozen=True)
class Feature:
    """What is known of a feature before there is an image.

    Attributes:
        channels: Channels of the map, or numbers in a token.
        scale: Side of a patch in pixels of the map; None while it is still tokens.
    """

    channels: int
    scale: Fraction | None

    def map_scale(self, reader: str) -> Fraction:
        """The scale of a map.

        Raises:
            ContractError: It is tokens, which `reader` cannot read.
        """
        if self.scale is None:
            raise ContractError(
                f"{reader} reads maps, but the necks give tokens: "
                "put ReshapeTokensToImage before it"
            )
        return self.scale


def build_part(
    kind: str, known: Mapping[str, type[nn.Module]], described: Any, *given: Any, **more: Any
) -> Any:
    """Builds the part that a configuration describes.

    Args:
        kind: What the configuration calls it, for errors.
        known: Classes by name.
        described: `{"name": …}` and the arguments of that class.
        *given: What the class is told besides, by position.
        **more: What the class is told besides where it asks for it, by name.

    Raises:
        ContractError: No class goes by the name, or it takes no such argument or value.
    """
    if not isinstance(described, Mapping) or not isinstance(described.get("name"), str):
        raise ContractError(
            f'vision_config.{kind} must look like {{"name": …}} and arguments, got {described!r}'
        )
    name = described["name"]
    if name not in known:
        raise ContractError(f"vision_config.{kind}: {name} is not supported, only {sorted(known)}")
    arguments = {key: value for key, value in described.items() if key != "name"}
    parameters = list(inspect.signature(known[name]).parameters.values())[len(given) :]
    wanted = {one.name for one in parameters}
    free = sorted(wanted - more.keys())
    if unknown := sorted(arguments.keys() - set(free)):
        raise ContractError(
            f"vision_config.{kind}: {name} does not take {unknown} here, only {free}"
        )
    arguments.update({key: value for key, value in more.items() if key in wanted})
    try:
        return known[name](*given, **arguments)
    except (TypeError, KeyError, IndexError, RuntimeError) as error:
        raise ContractError(
            f"vision_config.{kind}: {name} cannot be built with {described!r}: {error}"
        ) from error


def refuse_unless(met: bool, part: str, argument: str, value: object, wanted: str) -> None:
    """Checks an argument of a part.

    Raises:
        ContractError: It is not as wanted.
    """
    if not met:
        raise ContractError(f"{part}: {argument} must be {wanted}, got {value!r}")


def pick(features: list[Feature], index: Any, part: str, argument: str) -> Feature:
    """The feature at an index, counted from the end when negative.

    Raises:
        ContractError: There is none.
    """
    met = isinstance(index, int) and -len(features) <= index < len(features)
    refuse_unless(met, part, argument, index, f"the number of one of {len(features)} features")
    return features[index]
