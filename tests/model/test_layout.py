"""How convolutions keep their weights, and that it does not show."""

import pytest
import torch
from torch import nn

from vllm_raster_model.layout import keep_channels_last


class Scaled(nn.Module):
    """Has a weight of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))


def convolutions(*more: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    layers = (
        nn.Conv2d(3, 8, 3, stride=2, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.ConvTranspose2d(8, 4, 2, stride=2),
    )
    return nn.Sequential(*layers, *more).eval()


def channels_last(network: nn.Module) -> list[bool]:
    """Of each weight that is not as torch makes it."""
    weights = (one for one in network.parameters() if one.ndim == 4)
    return [
        one.is_contiguous(memory_format=torch.channels_last)
        for one in weights
        if not one.is_contiguous()
    ]


@torch.inference_mode()
def test_convolutions_alone() -> None:
    network = convolutions()
    window = torch.rand(2, 3, 32, 48)
    before = network(window)
    assert keep_channels_last(network)
    assert channels_last(network) == [True, True]
    torch.testing.assert_close(network(window), before, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "other", [nn.Linear(4, 4), nn.LayerNorm(4), nn.GroupNorm(2, 4), nn.Conv3d(1, 1, 1), Scaled()]
)
def test_not_with_anything_else(other: nn.Module) -> None:
    network = convolutions(other)
    assert not keep_channels_last(network)
    assert not channels_last(network)


def test_nothing_to_keep() -> None:
    assert not keep_channels_last(nn.ReLU())
