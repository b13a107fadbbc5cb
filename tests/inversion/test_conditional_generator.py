"""The conditional generator and its critic: what they are made of, and the penalty against loops."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cosine_similarity

from remix.inversion import ConditionalGenerator, Critic, gradient_penalty


def test_the_networks_are_those_of_the_original():
    with torch.device("meta"):
        painter, critic = ConditionalGenerator((3, 32, 32), 50).painter, Critic((3, 32, 32))
    assert painter.project.weight.shape == (256 * 8 * 8, 200)
    assert [step[0].weight.shape[:2] for step in painter.doublings] == [(128, 256), (64, 128)]
    assert {step[1].eps for step in painter.doublings} == {1e-5}
    layers = [layer for layer in critic.look if isinstance(layer, nn.Conv2d)]
    assert [layer.out_channels for layer in layers] == [64, 128, 128, 256, 256, 512, 512]
    assert [(layer.kernel_size[0], layer.stride[0]) for layer in layers] == [(3, 1), (4, 2)] * 3 + [(3, 1)]
    assert critic.judge.weight.shape == (1, 512 * 4 * 4)


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 64, 64)])
def test_images_of_every_size_are_painted_and_judged(shape, generator):
    painted = ConditionalGenerator(shape, 3, 2, 5, generator).paint(torch.rand(4, 3), generator)
    assert painted.shape == (4, *shape)
    assert Critic(shape, 2, generator)(painted).shape == (4,)


def test_the_vectors_of_a_mixture_are_added_and_have_length_one(generator):
    network = ConditionalGenerator((1, 8, 8), 3, 2, 5, generator)
    seen = []
    network.painter.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    mixture, noise = torch.tensor([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]]), torch.randn(2, 5)
    network(mixture, noise)
    assert torch.equal(seen[0][:, :5], noise)
    for row, shares in zip(seen[0], mixture, strict=True):
        total = sum(share * vector for share, vector in zip(shares, network.vectors, strict=True))
        assert float(row[5:].norm()) == pytest.approx(1)
        assert float(cosine_similarity(row[5:], total, dim=0)) == pytest.approx(1)


def test_the_penalty_is_of_slopes_between_real_and_painted_images(generator):
    critic = Critic((1, 8, 8), 2, generator)
    real, painted = torch.randn(2, 5, 1, 8, 8, generator=generator)
    state = generator.get_state()
    found = gradient_penalty(critic, real, painted, generator)
    generator.set_state(state)
    naive = 0.0
    for share, a, b in zip(torch.rand(5, generator=generator), real, painted, strict=True):
        point = (share * a + (1 - share) * b)[None].requires_grad_()
        slope = torch.autograd.grad(critic(point)[0], point)[0]
        naive += float((slope.square().sum().sqrt() - 1) ** 2) / 5
    assert float(found.detach()) == pytest.approx(naive, rel=1e-5)
    found.backward()
    assert any(parameter.grad.any() for parameter in critic.parameters() if parameter.grad is not None)


def test_a_fixed_critic_gives_gradients_to_images_only(generator):
    critic, images = Critic((1, 8, 8), 2, generator), torch.randn(3, 1, 8, 8, requires_grad=True)
    judged = critic.fixed(images)
    torch.testing.assert_close(judged, critic(images))
    judged.sum().backward()
    assert images.grad.any()
    assert all(parameter.grad is None for parameter in critic.parameters())


def test_images_that_cannot_be_halved_three_times_are_refused():
    with pytest.raises(ValueError, match="8 pixels are the fewest, not 4 x 8"):
        Critic((1, 4, 8))
