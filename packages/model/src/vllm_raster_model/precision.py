"""In which type a network computes where it is served: what is asked for, what is known, a trial.

A shorter type is the default only where it was seen to be right and is seen to be faster. Whether
it is right, real scenes tell: `vllm-raster-model precision` compares the maps of some, and writes
the share that agrees into the checkpoint. (Made-up windows do not tell: with their roughness alone
the share went from 0.998 to 0.9998 for a network whose real scenes agree to 0.9991 and 0.9994.)
Whether it is faster, a trial on the machine tells, in about a second at the start.
"""

import os
import time
from dataclasses import dataclass
from typing import get_args

import torch
from torch import nn

from vllm_raster_model.contract import ComputeDtype, RasterContract
from vllm_raster_model.errors import ContractError
from vllm_raster_model.networks.precision import Shortened, short_parts

SWITCH = "VLLM_RASTER_COMPUTE_DTYPE"
"""The environment variable that says what config.json's `raster.compute_dtype` may say, too."""
LEAST_AGREEMENT = 0.999
"""Share of the pixels of real scenes whose map must be the same for `auto` to choose bfloat16."""
LEAST_GAIN = 1.2
"""How many times as fast it must be. Less is within what two trials on a busy machine differ by,
and the next start might choose otherwise."""
_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
_SECONDS = 1.0
_SMALLEST_SIDE = 64
_ROUNDS = 3


@dataclass(frozen=True)
class Precision:
    """What was chosen, and why."""

    dtype: torch.dtype
    reason: str

    def __str__(self) -> str:
        return f"Computing in {str(self.dtype).removeprefix('torch.')}: {self.reason}."


def settle_precision(network: nn.Module, contract: RasterContract, devices: int = 1) -> Precision:
    """Chooses in which type a network computes, and makes it do so.

    Args:
        network: With its weights loaded, before the engine packs them; on its device.
        contract: The `raster` block.
        devices: Over how many its layers are split.

    Raises:
        ContractError: A type is asked for that is none, or that the network cannot compute in.
    """
    chosen = _chosen(network, contract, devices)
    compute_in(network, chosen.dtype)
    return chosen


def compute_in(network: nn.Module, dtype: torch.dtype) -> None:
    """Makes a network in float32 compute in another type, as far as it allows that."""
    if dtype != torch.float32:
        Shortened(network, dtype).keep()


def _chosen(network: nn.Module, contract: RasterContract, devices: int) -> Precision:
    wanted, asker = _wanted(contract)
    if wanted == "auto":
        return _best(network, contract, devices)
    if wanted != "float32" and not short_parts(network):
        raise ContractError(
            f"{asker} asks for {wanted}, but {type(network).__name__} computes in float32 only: "
            "none of its parts is named in its `short_parts`"
        )
    return Precision(_DTYPES.get(wanted, torch.float32), f"{asker} asks for it")


def _wanted(contract: RasterContract) -> tuple[ComputeDtype, str]:
    """The type that is asked for, and by what."""
    said = os.environ.get(SWITCH)
    if not said:
        return contract.compute_dtype, "raster.compute_dtype"
    known: tuple[ComputeDtype, ...] = get_args(ComputeDtype)
    for one in known:
        if one == said:
            return one, SWITCH
    raise ContractError(f"{SWITCH} must be one of {list(known)}, got {said!r}")


def _best(network: nn.Module, contract: RasterContract, devices: int) -> Precision:
    """What is asked first costs least: the trial comes last, and only where it can matter."""
    device = next(network.parameters()).device
    agreement = contract.agreement.get("bfloat16")
    reason = None
    if not short_parts(network):
        reason = "the network knows no other way"
    elif agreement is None:
        reason = (
            "no one has compared bfloat16 on real scenes yet, which `vllm-raster-model precision` "
            "does"
        )
    elif agreement < LEAST_AGREEMENT:
        reason = f"with bfloat16 only {agreement:.2%} of the pixels of real scenes are the same"
    elif not has_bfloat16(device):
        reason = f"this {device.type} has no bfloat16"
    elif devices > 1:
        reason = "over several devices bfloat16 is for you to choose"
    if reason is None and agreement is not None:
        gain = speed_gain(network, contract)
        if gain >= LEAST_GAIN:
            told = f"it is {gain:.1f} times as fast here, and {agreement:.2%} of the pixels of real"
            return Precision(torch.bfloat16, f"{told} scenes are the same")
        reason = f"bfloat16 is {gain:.1f} times as fast here, less than {LEAST_GAIN}"
    return Precision(torch.float32, str(reason))


def has_bfloat16(device: torch.device) -> bool:
    """Whether a device multiplies in bfloat16 by itself, and does not only convert it."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "cpu":
        asked = ("_is_avx512_bf16_supported", "_is_amx_tile_supported", "_is_arm_bf16_supported")
        return any(getattr(torch.cpu, one)() for one in asked if hasattr(torch.cpu, one))
    return False


@torch.inference_mode()
def speed_gain(network: nn.Module, contract: RasterContract) -> float:
    """How many times as fast a network is in bfloat16 on its device.

    The window is the largest that leaves the whole trial within about a second; where even a small
    one takes longer, the trial takes as long as a few of these.
    """
    network.eval()  # as it is served: while the engine loads it, it is still in training
    device = next(network.parameters()).device
    tile, facts = contract.tile, contract.input
    side = min(tile.size, max(tile.minimum or 0, _up_to(_SMALLEST_SIDE, tile.multiple_of)))
    while True:
        inputs = _window(facts.frames, len(facts.bands), side, device)
        _seconds(network, inputs)  # the first run of a size is slower
        whole = _seconds(network, inputs)
        if 2 * side > tile.size or 4 * whole * (2 * _ROUNDS + 2) > _SECONDS:
            break
        side *= 2
    shortened = Shortened(network, torch.bfloat16)
    with shortened:
        _seconds(network, inputs)
    short = float("inf")
    for _ in range(_ROUNDS):  # in turn, for machines change their speed
        whole = min(whole, _seconds(network, inputs))
        with shortened:
            short = min(short, _seconds(network, inputs))
    return whole / short


def _window(frames: int, bands: int, side: int, device: torch.device) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randn((1, bands, frames, side, side), generator=generator)
    dates = torch.tensor([2024.0, 200.0], dtype=torch.float64).expand(1, frames, 2)
    place = torch.tensor([[47.0, 11.0]], dtype=torch.float64)
    return tuple(one.to(device) for one in (pixels, dates, place))


def _seconds(network: nn.Module, inputs: tuple[torch.Tensor, ...]) -> float:
    device = inputs[0].device
    begin = time.perf_counter()
    network(*inputs)
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
    return time.perf_counter() - begin


def _up_to(length: int, cell: int) -> int:
    return -(-length // cell) * cell
