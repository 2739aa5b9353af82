"""The instructed model's ways into and out of its language model, cell by cell.

In goes the mean of each feature of a cell's pixels. Out comes the cell's hidden state, which is
turned into the weights of a small perceptron that is applied to the features of each pixel. So
the instruction, which the state has read, decides what is mapped, and the features, which the
language model never sees, how finely.
"""

import torch
from torch import nn


class DenseHead(nn.Module):
    """States and pixels' features of cells in, values from 0 to 1 out.

    Args:
        states: Width of a cell's hidden state.
        features: Features of a pixel.
        units: Hidden units of the perceptron.
        channels: Values of a pixel that come out.
    """

    def __init__(self, states: int, features: int, units: int, channels: int) -> None:
        super().__init__()
        self.features, self.units, self.channels = features, units, channels
        self.sizes = [units * features, units, channels * units, channels]
        self.weights = nn.Linear(states, sum(self.sizes))

    def logits(self, states: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        """Applies to each cell the perceptron that its state asks for.

        Args:
            states: (cells, states).
            features: (cells, features * pixels), feature by feature.

        Returns:
            (cells, channels * pixels), channel by channel, before the sigmoid.
        """
        first, first_bias, second, second_bias = self.weights(states).split(self.sizes, dim=-1)
        pixels = features.unflatten(-1, (self.features, -1))
        hidden = first.unflatten(-1, (self.units, self.features)) @ pixels
        hidden = torch.relu(hidden + first_bias[..., None])
        values = second.unflatten(-1, (self.channels, self.units)) @ hidden
        return (values + second_bias[..., None]).flatten(-2)

    def forward(self, states: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        """The values, from 0 to 1; arguments and shape as for `logits`."""
        return self.logits(states, features).sigmoid()


class CellProjector(nn.Module):
    """What the language model sees of cells: the mean of each feature, projected.

    Args:
        features: Features of a pixel.
        width: Of the language model.
    """

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.features = features
        self.linear = nn.Linear(features, width)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Maps (cells, features * pixels), feature by feature, to (cells, width)."""
        return self.linear(features.unflatten(-1, (self.features, -1)).mean(dim=-1))
