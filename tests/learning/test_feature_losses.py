"""Losses of features against loops."""

import pytest
import torch

from remix.learning.feature_losses import anti_collapse, feature_distillation, matrix_distillation


def test_distillation_is_the_mean_square_in_units_of_the_variance():
    torch.manual_seed(0)
    (now, then), variance = torch.randn(2, 3, 2).unbind(), torch.rand(2) + 1
    now.requires_grad_()
    then.requires_grad_()
    naive = sum(float((now[i, j] - then[i, j]).detach() ** 2 / variance[j]) for i in range(3) for j in range(2)) / 6
    found = feature_distillation(now, then, variance)
    assert float(found.detach()) == pytest.approx(naive, rel=1e-5)
    found.backward()
    assert then.grad is None  # the old model is not taught
    with pytest.raises(ValueError, match=r"must both be \(N, D\)"):
        feature_distillation(now, then[:2])


def test_distillation_in_a_metric():
    torch.manual_seed(0)
    now, then, matrix = torch.randn(3, 2), torch.randn(3, 2), torch.tensor([[2.0, 0.5], [0.5, 1.0]])
    naive = sum(float((now[i] - then[i]) @ matrix @ (now[i] - then[i])) for i in range(3)) / 3
    assert float(matrix_distillation(now, then, matrix)) == pytest.approx(naive, rel=1e-5)


def test_features_are_kept_from_collapsing_up_to_a_limit():
    torch.manual_seed(0)
    features = torch.randn(50, 3, dtype=torch.float64) @ torch.diag(torch.tensor([0.1, 0.5, 5.0], dtype=torch.float64))
    centred = features - features.mean(0)
    root = torch.linalg.cholesky(centred.T @ centred / 49)
    naive = -sum(min(float(root[i, i]), 1.0) for i in range(3)) / 3
    assert float(anti_collapse(features)) == pytest.approx(naive, rel=1e-3)
    assert torch.isfinite(anti_collapse(torch.zeros(5, 3)))
    with pytest.raises(ValueError, match="from 4 samples on, got 3"):
        anti_collapse(features[:3])
