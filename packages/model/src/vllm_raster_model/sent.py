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
_SMALLEST = 2.0**-24
"""The smallest positive number in half precision (IEEE 754 binary16)."""
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
    if len(scores) > torch.iinfo(torch.uint8).max:
        return _class_ids(scores)
    # Ten times as fast on a CPU as argmax, or max with its indices.
    best = scores[:1].clone()
    ids = torch.zeros(best.shape, dtype=torch.uint8, device=scores.device)
    for number in range(1, len(scores)):
        one = scores[number : number + 1]
        torch.maximum(ids, (one > best).view(torch.uint8) * number, out=ids)
        torch.maximum(best, one, out=best)
    # NaN stays in the greatest ones, and is greater than none.
    return _class_ids(scores) if best.sum().isnan() else ids


def _class_ids(scores: torch.Tensor) -> torch.Tensor:
    fits = (one for one in _INTEGERS if len(scores) <= torch.iinfo(one).max)
    return scores.max(dim=0, keepdim=True).indices.to(next(fits, torch.int32))


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
    below = scores - scores.amax(dim=0, keepdim=True)
    # NaN is not within either.
    if not below.amin() >= -_WIDEST:
        return scores
    halves = below.half()
    return halves.masked_fill_((halves == 0) & (below < 0), -_SMALLEST)
