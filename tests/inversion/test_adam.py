import torch

from remix.inversion.adam import Adam


def test_steps_are_those_of_the_textbook(generator):
    ours = [torch.randn(5, 3, generator=generator), torch.randn(4, generator=generator)]
    plain = [(tensor.double(), torch.zeros_like(tensor).double(), torch.zeros_like(tensor).double()) for tensor in ours]
    adam = Adam(ours)
    for step in range(1, 21):
        gradients = [torch.randn(tensor.shape, generator=generator) for tensor in ours]
        rate = 0.3 / step
        moved = []
        for (x, m, v), g in zip(plain, (gradient.double() for gradient in gradients), strict=True):
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            x = x - rate * (m / (1 - 0.9**step)) / ((v / (1 - 0.999**step)).sqrt() + 1e-8)
            moved.append((x, m, v))
        plain = moved
        adam.step(gradients, rate)
    assert adam.steps == 20
    for (x, m, v), tensor, first, second in zip(plain, ours, adam.first, adam.second, strict=True):
        torch.testing.assert_close(tensor, x.float())
        torch.testing.assert_close(first, m.float())
        torch.testing.assert_close(second, v.float())


def test_a_state_that_is_set_goes_on_with_the_same_bits(generator):
    x = torch.randn(50, generator=generator)
    gradients = torch.randn(8, 50, generator=generator)
    adam = Adam([x])
    for gradient in gradients[:4]:
        adam.step([gradient.clone()], 0.1)
    y = x.clone()
    other = Adam([y])
    other.set(adam.steps, [t.clone() for t in adam.first], [t.clone() for t in adam.second])
    for gradient in gradients[4:]:
        adam.step([gradient.clone()], 0.1)
        other.step([gradient.clone()], 0.1)
    assert torch.equal(x, y)
