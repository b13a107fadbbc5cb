import torch

from remix.inversion.adam import Adam


def test_steps_are_those_of_torch(generator):
    ours = [torch.randn(5, 3, generator=generator), torch.randn(4, generator=generator)]
    theirs = [tensor.clone().requires_grad_() for tensor in ours]
    optimiser = torch.optim.Adam(theirs, 0.3)
    adam = Adam(ours)
    for step in range(20):
        gradients = [torch.randn(tensor.shape, generator=generator) for tensor in ours]
        for tensor, gradient in zip(theirs, gradients, strict=True):
            tensor.grad = gradient.clone()
        optimiser.param_groups[0]["lr"] = 0.3 / (step + 1)
        optimiser.step()
        adam.step(ours, ours, gradients, 0.3 / (step + 1))
    for tensor, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(tensor, other.detach())


def test_a_step_can_leave_the_old_point_as_it_was(generator):
    old, new = torch.randn(6, generator=generator), torch.empty(6)
    before = old.clone()
    gradient = torch.randn(6, generator=generator)
    Adam([old]).step([old], [new], [gradient.clone()], 0.1)
    assert torch.equal(old, before)
    Adam([old]).step([old], [old], [gradient], 0.1)
    assert torch.equal(old, new)
