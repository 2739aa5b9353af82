"""The dense head and the projector, against loops over cells and pixels."""

import numpy as np
import numpy.typing as npt
import pytest
import torch

from vllm_raster_model.head import CellProjector, DenseHead

Array = npt.NDArray[np.float64]


def looped(head: DenseHead, states: Array, features: Array) -> Array:
    """What the head gives before the sigmoid, pixel by pixel: (cells, channels * pixels)."""
    weight = head.weights.weight.detach().numpy()
    bias = head.weights.bias.detach().numpy()
    units, count, channels = head.units, head.features, head.channels
    pixels = features.shape[1] // count
    found = np.empty((len(states), channels * pixels))
    for cell, state in enumerate(states):
        asked = list(weight @ state + bias)
        first = [[asked.pop(0) for _ in range(count)] for _ in range(units)]
        first_bias = [asked.pop(0) for _ in range(units)]
        second = [[asked.pop(0) for _ in range(units)] for _ in range(channels)]
        second_bias = asked
        for pixel in range(pixels):
            here = [features[cell, i * pixels + pixel] for i in range(count)]
            hidden = [max(0, np.dot(first[u], here) + first_bias[u]) for u in range(units)]
            for channel in range(channels):
                value = np.dot(second[channel], hidden) + second_bias[channel]
                found[cell, channel * pixels + pixel] = value
    return found


def head_of(weight: Array, bias: Array, *, features: int, units: int, channels: int) -> DenseHead:
    head = DenseHead(weight.shape[1], features, units, channels)
    head.weights.weight.data = torch.tensor(weight, dtype=torch.float32)
    head.weights.bias.data = torch.tensor(bias, dtype=torch.float32)
    return head


def test_worked_out_by_hand() -> None:
    # One feature, one unit, one channel: the state says a factor, what is cut off, and the rest.
    head = head_of(np.eye(4), np.zeros(4), features=1, units=1, channels=1)
    states = torch.tensor([[2.0, -1, 3, 0.5], [-1, 0, 1, 0]])
    features = torch.tensor([[0.0, 1, 2], [3, 0, -3]])
    expected = torch.tensor([[0.5, 3.5, 9.5], [0, 0, 3]])
    assert torch.equal(head.logits(states, features), expected)
    torch.testing.assert_close(head(states, features), 1 / (1 + (-expected).exp()))


@pytest.mark.parametrize(
    ("features", "units", "channels", "pixels"), [(1, 1, 1, 1), (3, 4, 2, 6), (5, 2, 3, 4)]
)
def test_as_a_loop_over_cells_and_pixels(
    features: int, units: int, channels: int, pixels: int
) -> None:
    rng = np.random.default_rng(0)
    count = units * features + units + channels * units + channels
    weight, bias = rng.normal(size=(count, 7)), rng.normal(size=count)
    head = head_of(weight, bias, features=features, units=units, channels=channels)
    states, values = rng.normal(size=(5, 7)), rng.normal(size=(5, features * pixels))
    given = torch.tensor(states, dtype=torch.float32), torch.tensor(values, dtype=torch.float32)
    expected = looped(head, states, values)
    np.testing.assert_allclose(head.logits(*given).detach(), expected, rtol=1e-4, atol=1e-4)
    found = head(*given).detach()
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-expected)), rtol=1e-4, atol=1e-5)


def test_cells_do_not_touch_one_another() -> None:
    head = DenseHead(7, 3, 4, 2)
    states, features = torch.rand(5, 7), torch.rand(5, 12)
    whole = head(states, features)
    states[2], features[4] = 0, 0
    same = (head(states, features) == whole).all(dim=-1)
    assert same.tolist() == [True, True, False, True, False]


def test_no_cells() -> None:
    assert DenseHead(7, 3, 4, 2)(torch.zeros(0, 7), torch.zeros(0, 12)).shape == (0, 8)
    assert CellProjector(3, 7)(torch.zeros(0, 12)).shape == (0, 7)


def test_projector_is_the_mean_projected() -> None:
    projector = CellProjector(2, 3)
    projector.linear.weight.data = torch.tensor([[1.0, 0], [0, 1], [10, 100]])
    projector.linear.bias.data = torch.tensor([0.0, 0, 0.5])
    # Two cells of four pixels: first the four of one feature, then those of the other.
    features = torch.tensor([[1.0, 2, 3, 6, 0, 0, 0, 8], [4, 4, 4, 4, -1, 1, -1, 1]])
    assert projector(features).tolist() == [[3, 2, 230.5], [4, 0, 40.5]]
