"""Maps between features: seeded, of the shape they are said to be."""

import torch

from remix.learning.feature_maps import FeatureMlp, seeded_linear


def test_a_map_is_two_layers_with_gelu_between_and_the_same_with_the_same_seed():
    one, two = (FeatureMlp(3, torch.Generator().manual_seed(0), width=4) for _ in range(2))
    x = torch.randn(5, 3)
    assert torch.equal(one(x), two(x))
    first, last = one.layers[0], one.layers[2]
    naive = torch.nn.functional.gelu(x @ first.weight.T + first.bias) @ last.weight.T + last.bias
    torch.testing.assert_close(one(x), naive)
    assert first.weight.shape == (12, 3)


def test_weights_are_as_wide_as_those_of_torch():
    layer = seeded_linear(100, 50, torch.Generator().manual_seed(0), bias=False)
    assert layer.bias is None
    assert 0.09 < float(layer.weight.abs().max()) <= 0.1
