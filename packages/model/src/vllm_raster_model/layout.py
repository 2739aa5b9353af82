"""How convolutions keep their weights in memory: as they come, or with channels last."""

import torch
from torch import nn


def keep_channels_last(network: nn.Module) -> bool:
    """Has a network of two-dimensional convolutions alone keep their weights with channels last.

    A CPU's kernels work on pixels whose channels lie side by side, and where they do not, each
    layer brings them there first, and back. What a layer with such weights gives is so, too, as
    PyTorch advises for networks of this kind. One that also joins, normalises or attends may get
    slower by it: a Prithvi with a UPerNet does.

    Args:
        network: With its weights loaded, on a CPU.

    Returns:
        Whether it is such a network.
    """
    layers = [one for one in network.modules() if any(True for _ in one.parameters(recurse=False))]
    if not layers or not all(isinstance(one, _ALONE) for one in layers):
        return False
    for one in layers:
        if isinstance(one, _CONVOLUTIONS):
            one.weight.data = one.weight.data.contiguous(memory_format=torch.channels_last)
    return True


_CONVOLUTIONS = (nn.Conv2d, nn.ConvTranspose2d)
_ALONE = (*_CONVOLUTIONS, nn.BatchNorm2d)
