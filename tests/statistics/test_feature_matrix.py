"""The feature matrix against its definition, and as part of a memory."""

import pytest
import torch

from remix.statistics import FeatureMatrix, Memory, feature_matrix, shifted_means


@pytest.mark.parametrize("bias", [False, True])
def test_it_is_the_mean_of_squared_jacobians_of_log_probabilities(bias):
    torch.manual_seed(0)
    head, features = torch.nn.Linear(3, 4, bias=bias), torch.randn(6, 3)
    naive = torch.zeros(3, 3)
    for row in features:
        jacobian = torch.autograd.functional.jacobian(lambda z: head(z).log_softmax(0), row)
        for place, share in enumerate(head(row).softmax(0).detach()):
            naive += share * torch.outer(jacobian[place], jacobian[place]) / len(features)
    torch.testing.assert_close(feature_matrix(features, head).matrix, naive, rtol=1e-4, atol=1e-6)


def test_means_move_as_what_is_near_to_them():
    torch.manual_seed(0)
    means, before, after = torch.randn(2, 3), torch.randn(8, 3), torch.randn(8, 3)
    metric = torch.diag(torch.tensor([1.0, 2.0, 0.5]))
    near = [[-float((x - m) @ metric @ (x - m)) for x in before] for m in means]
    least, most = min(map(min, near)), max(map(max, near))
    for place, mean in enumerate(means):
        weights = torch.tensor([(d - least) / (most - least) / 0.08 for d in near[place]]).exp()
        naive = mean + sum(w * (y - x) for w, x, y in zip(weights / weights.sum(), before, after, strict=True))
        torch.testing.assert_close(shifted_means(means, before, after, metric)[place], naive, rtol=1e-4, atol=1e-5)


def test_a_memory_keeps_it_and_refuses_what_is_none(tmp_path):
    memory = Memory()
    memory.keep(FeatureMatrix(torch.eye(3)))
    memory.save(tmp_path / "memory.safetensors")
    loaded = Memory.load(tmp_path / "memory.safetensors")
    assert torch.equal(loaded.get(FeatureMatrix.name).matrix, torch.eye(3))
    assert loaded.describe()[0].bytes == 36
    assert "last task" in memory.without([0])[1][-1]
    for wrong in (torch.zeros(3, 2), torch.full((2, 2), torch.nan), torch.tensor([[1.0, 2.0], [0.0, 1.0]])):
        with pytest.raises(ValueError, match="a feature matrix must be"):
            FeatureMatrix(wrong)
