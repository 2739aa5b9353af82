"""What of a map goes back to whoever asked for it: its scores, rounded ones, or class ids.

`PoolingParams.extra_kwargs["answer"]` says which, of a checkpoint that gives classes: `"scores"`,
as without it; `"rounded"`, see `rounded`; `"ids"`, see `class_ids`. The IO processor of
vllm-raster-io asks for the least that its map can be made of, and takes what comes by its type:
so either package works with one that knows nothing of this.
"""

import torch

ANSWERS = ("scores", "rounded", "ids")
"""What may be asked for."""

_WIDEST = 32.0
"""Scores that lie further apart in a window are not rounded: see `rounded`."""
_BITS_BELOW_ZERO = 0x8001 - 2**16
"""-2**-24, the number next below 0 in half precision (IEEE 754 binary16), as a 16-bit integer."""
_INTEGERS = (torch.uint8, torch.uint16)


def sent(scores: torch.Tensor, answer: object) -> torch.Tensor:
    """What goes back.

    Args:
        scores: (channels, …), float32, not empty.
        answer: One of `ANSWERS`; the scores where it is another.
    """
    if answer == "ids":
        return class_ids(scores)
    return rounded(scores) if answer == "rounded" else scores


def class_ids(scores: torch.Tensor) -> torch.Tensor:
    """The class of the greatest score of each pixel, the first of equal ones; NaN is greatest.

    Returns:
        (1, …), uint8 for at most 255 classes, uint16 for at most 65,535, else int32:
        a value is left in each for pixels without a class.
    """
    # Looked at for NaN first: in the order of memory, which brings them into the caches.
    few = len(scores) <= torch.iinfo(torch.uint8).max
    if few and scores.is_cpu and not scores.sum().isnan():
        return _running_maximum(scores)
    fits = (one for one in _INTEGERS if len(scores) <= torch.iinfo(one).max)
    # Not argmax, which takes thirty times as long on a CPU.
    return scores.max(dim=0, keepdim=True).indices.to(next(fits, torch.int32))


def _running_maximum(scores: torch.Tensor) -> torch.Tensor:
    """The classes of the greatest scores, a class at a time: ten times as fast on a CPU."""
    greatest = scores[:1]
    ids = torch.zeros((), dtype=torch.uint8).expand_as(greatest)
    for i in range(1, len(scores)):
        # Each id is greater than those before.
        greater = (scores[i] > greatest).view(torch.uint8)
        ids = greater if i == 1 else torch.maximum(ids, greater.mul_(i), out=ids)
        if i + 1 < len(scores):
            greatest = torch.maximum(greatest, scores[i])
    return ids


def rounded(scores: torch.Tensor) -> torch.Tensor:
    """Scores in half precision, less the greatest of their pixel, which is 0 then.

    Neither softmax nor the greatest class changes where all scores of a pixel do by the same
    amount, also in a weighted mean of windows. No other score becomes 0, so the class of a pixel
    is the same. Each is at most 2**-7 off, half the distance of such numbers from 16 to 32; so is
    a mean of windows. That changes a probability by at most tanh(2**-8), which is less than
    1/255, and the class of a mean only where its best two scores are less than 2**-6 apart.

    Args:
        scores: (channels, …), float32.

    Returns:
        The same shape in float16. Where two scores of a pixel are more than 32 apart, or one is
        infinite or NaN, the scores as they are.
    """
    # Adding 0 makes -0 to 0: zeros of either sign are equal.
    below = (scores - scores.amax(dim=0, keepdim=True)).add_(0.0)
    # NaN is not within either.
    if not below.amin() >= -_WIDEST:
        return scores
    halves = below.half()
    # So what is -0 was less; as an integer it is next to the smallest number below 0.
    halves.view(torch.int16).clamp_(min=_BITS_BELOW_ZERO)
    return halves
