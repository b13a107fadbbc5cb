import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import conv2d, interpolate

from remix.inversion.image_generator import DoublingConvolution, ImageGenerator


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


@pytest.mark.parametrize(("shape", "parameters"), [((3, 32, 32), 8_423_939), ((3, 64, 64), 8_571_779)])
def test_parameters_are_as_many_as_published(shape, parameters):
    with torch.device("meta"):
        network = ImageGenerator(shape)
    assert sum(parameter.numel() for parameter in network.parameters()) == parameters


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 16, 16), (3, 64, 64)])
def test_images_have_the_shape_and_a_normalised_batch(shape, generator):
    network = ImageGenerator(shape, noise=5, generator=generator)
    images = network(torch.randn(8, 5, generator=generator))
    assert images.shape == (8, *shape)
    torch.testing.assert_close(images.mean((0, 2, 3)), torch.zeros(shape[0]), atol=1e-4, rtol=0)
    torch.testing.assert_close(images.var((0, 2, 3)), torch.ones(shape[0]), atol=2e-2, rtol=0)


def test_a_seed_decides_the_weights(generator):
    one, other = (ImageGenerator((1, 8, 8), 5, torch.Generator().manual_seed(3)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_a_size_that_cannot_be_doubled_to_is_refused():
    with pytest.raises(ValueError, match="sides divisible by 4"):
        ImageGenerator((1, 10, 8))
