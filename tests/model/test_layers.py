"""The layers in plain PyTorch, against attention written out."""

import torch

from vllm_raster_model.networks import TorchLayers


def test_attention() -> None:
    heads, width, tokens = 3, 4, 5
    query, key, value = torch.randn(3, 2, tokens, heads * width, dtype=torch.float64)
    found = TorchLayers().attention(heads, width, prefix="")(query, key, value)
    assert found.shape == (2, tokens, heads * width)
    for item in range(2):
        for head in range(heads):
            mine = slice(head * width, (head + 1) * width)
            q, k, v = (x[item, :, mine] for x in (query, key, value))
            weights = torch.softmax(q @ k.T / width**0.5, dim=-1)
            torch.testing.assert_close(found[item, :, mine], weights @ v)


def test_linear_layers() -> None:
    layers = TorchLayers()
    assert layers.parallel_size == 1
    for layer, outputs in (
        (layers.column(6, 10, prefix=""), 10),
        (layers.row(6, 10, prefix=""), 10),
        (layers.qkv(6, 2, prefix=""), 18),
    ):
        values = torch.randn(2, 3, 6)
        expected = values @ layer.weight.T + layer.bias
        assert expected.shape == (2, 3, outputs)
        torch.testing.assert_close(layer(values), expected)
