"""A convolution of an enlarged image, against enlarging and convolving."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import conv2d, interpolate

from remix.inversion.doubling import DoublingConvolution


def plain(x, layer):
    return conv2d(interpolate(x, scale_factor=2), layer.weight, layer.bias, padding=1)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), st.integers(1, 6), st.integers(1, 6), st.integers(0, 99)
)
def test_values_and_gradients_are_those_of_the_large_image(count, inside, outside, height, width, seed):
    source = torch.Generator().manual_seed(seed)
    layer = DoublingConvolution(inside, outside).double()
    x = torch.randn(count, inside, height, width, dtype=torch.float64, generator=source, requires_grad=True)
    expected = plain(x, layer)
    found = layer(x)
    torch.testing.assert_close(found, expected)
    weights = torch.randn(expected.shape, dtype=torch.float64, generator=source)
    inputs = (x, layer.weight, layer.bias)
    torch.testing.assert_close(
        torch.autograd.grad(found, inputs, weights), torch.autograd.grad(expected, inputs, weights)
    )


@pytest.mark.parametrize("shape", [(128, 128, 8), (128, 64, 16)])
def test_single_precision_is_as_good_as_the_plain_way(shape):
    inside, outside, side = shape
    torch.manual_seed(0)
    layer = DoublingConvolution(inside, outside)
    x = torch.randn(4, inside, side, side)
    exact = plain(x.double(), layer.double()).detach()
    layer.float()
    with torch.no_grad():
        ours, theirs = ((way - exact).abs().max() for way in (layer(x), plain(x, layer)))
    assert ours < 4 * theirs
    assert ours < 1e-4
