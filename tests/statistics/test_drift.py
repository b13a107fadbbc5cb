"""Drift of features, and class Gaussians that follow it."""

import pytest
import torch

from remix.statistics import (
    ClassMeter,
    Drift,
    Memory,
    class_gaussians,
    feature_point,
    fit_drift,
    fit_mlp_drift,
    run_meters,
)
from remix.statistics.class_gaussians import ClassGaussians, as_correlation


def correlated(generator: torch.Generator, classes: int = 3, dim: int = 4) -> tuple[ClassGaussians, torch.Tensor]:
    """Gaussians with correlations, and their covariances."""
    roots = torch.randn(classes, dim, dim, generator=generator)
    covariance = roots @ roots.mT + 0.1 * torch.eye(dim)
    mean = torch.randn(classes, dim, generator=generator)
    std = covariance.diagonal(dim1=1, dim2=2).sqrt()
    labels = tuple(range(classes))
    return ClassGaussians(labels, (50,) * classes, mean, std, as_correlation(covariance)), covariance


def test_an_affine_drift_is_found(generator):
    matrix, shift = torch.randn(5, 5, generator=generator), torch.randn(5, generator=generator)
    before = torch.randn(400, 5, generator=generator) * torch.tensor([1.0, 2.0, 0.5, 3.0, 1.0]) + 4
    drift = fit_drift(before, before @ matrix + shift, ridge=1e-9)
    assert torch.allclose(drift.matrix, matrix, atol=1e-4)
    assert torch.allclose(drift.shift, shift, atol=1e-3)
    assert torch.allclose(drift(before), before @ matrix + shift, atol=1e-3)


def test_it_is_the_least_squares_solution_with_the_identity_as_prior(generator):
    before, after = torch.randn(2, 60, 3, generator=generator, dtype=torch.float64)
    drift = fit_drift(before, after, ridge=0.1)
    x, y = before - before.mean(0), after - after.mean(0)
    hold = 0.1 * x.square().sum() / 3
    moved = torch.linalg.lstsq(
        torch.cat([x, hold.sqrt() * torch.eye(3, dtype=torch.float64)]),
        torch.cat([y - x, torch.zeros(3, 3, dtype=torch.float64)]),
    ).solution
    assert torch.allclose(drift.matrix, torch.eye(3, dtype=torch.float64) + moved)


def test_what_does_not_vary_stays(generator):
    before = torch.randn(50, 3, generator=generator)
    before[:, 1] = 2.0
    after = before * torch.tensor([3.0, 1.0, 1.0])
    drift = fit_drift(before, after)
    assert torch.allclose(drift.matrix, torch.diag(torch.tensor([3.0, 1.0, 1.0])), atol=1e-2)
    alone = fit_drift(torch.ones(1, 3), torch.full((1, 3), 4.0))  # one image: only the shift is known
    assert torch.allclose(alone.matrix, torch.eye(3))
    assert torch.allclose(alone.shift, torch.full((3,), 3.0))


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (torch.zeros(3, 2), torch.zeros(4, 2), "must be"),
        (torch.zeros(0, 2), torch.zeros(0, 2), "must be"),
        (torch.zeros(3), torch.zeros(3), "must be"),
        (torch.full((3, 2), torch.nan), torch.zeros(3, 2), "finite"),
    ],
)
def test_features_that_do_not_fit_are_refused(before, after, message):
    with pytest.raises(ValueError, match=message):
        fit_drift(before, after)


def test_moved_gaussians_are_those_of_moved_features(generator):
    features = torch.randn(300, 4, generator=generator, dtype=torch.float64) @ torch.randn(
        4, 4, generator=generator, dtype=torch.float64
    )
    labels = torch.arange(300) % 3
    drift = Drift(
        torch.randn(4, 4, generator=generator, dtype=torch.float64),
        torch.randn(4, generator=generator, dtype=torch.float64),
    )

    def gaussians(rows: torch.Tensor) -> ClassGaussians:
        plain = class_gaussians(rows, labels)
        covariances = torch.stack([torch.cov(rows[labels == label].T, correction=0) for label in range(3)])
        return ClassGaussians(plain.labels, plain.counts, plain.mean, plain.std, as_correlation(covariances))

    found, expected = gaussians(features).moved(drift), gaussians(drift(features))
    for name in ("mean", "std", "correlation"):
        assert torch.allclose(getattr(found, name), getattr(expected, name), atol=1e-10), name


def test_gaussians_moved_by_a_map_that_leaves_something_are_as_wide_as_the_features(generator):
    before = (
        torch.randn(200, 4, generator=generator, dtype=torch.float64) @ torch.randn(4, 4, generator=generator).double()
    )
    noise = torch.randn(200, 4, generator=generator, dtype=torch.float64)
    after = before @ torch.randn(4, 4, generator=generator).double() + noise
    labels = torch.zeros(200, dtype=torch.int64)
    drift = fit_drift(before, after, ridge=1e-12)
    found, expected = class_gaussians(before, labels, True).moved(drift), class_gaussians(after, labels, True)
    assert torch.allclose(found.mean, expected.mean)
    assert torch.allclose(found.std, expected.std)
    assert torch.allclose(found.correlations, expected.correlations)
    narrow = class_gaussians(before, labels, True).moved(drift._replace(residual=None))
    assert bool((narrow.std < expected.std).all())


def test_what_an_mlp_leaves_is_known(generator):
    before = torch.randn(400, 3, generator=generator)
    after = before.square() + 0.3 * torch.randn(400, 3, generator=generator)
    found = fit_mlp_drift(before, after, generator)
    left = after - found(before)
    assert torch.allclose(found.residual, left.T @ left / 400, atol=1e-5)
    assert float(found.residual.trace()) < float(fit_drift(before, after).residual.trace())


def test_without_correlations_the_diagonal_moves(generator):
    plain = class_gaussians(torch.randn(40, 3, generator=generator), torch.arange(40) % 2)
    found = plain.moved(Drift(2 * torch.eye(3), torch.ones(3)))
    assert found.correlation is None
    assert torch.allclose(found.std, 2 * plain.std)
    assert torch.allclose(found.mean, 2 * plain.mean + 1)


def test_draws_have_the_covariance(generator):
    gaussians, covariance = correlated(generator)
    drawn = gaussians.sample(torch.full((40_000,), 1), generator)
    assert torch.allclose(torch.cov(drawn.T), covariance[1], atol=0.05 * float(covariance[1].diagonal().max()))


def test_correlations_of_fewer_samples_than_features_can_be_drawn_from(generator):
    rows = torch.randn(3, 8, generator=generator)
    correlation = as_correlation(torch.cov(rows.T, correction=0)[None])
    gaussians = ClassGaussians((0,), (3,), rows.mean(0)[None], rows.std(0, correction=0)[None], correlation)
    assert torch.isfinite(gaussians.sample([0] * 50, generator)).all()


def test_a_matrix_that_no_features_have_is_told_when_it_is_used(generator):
    impossible = torch.tensor([[1.0, 0.9, 0.9], [0.9, 1.0, -0.9], [0.9, -0.9, 1.0]])[None]
    gaussians = ClassGaussians((4,), (9,), torch.zeros(1, 3), torch.ones(1, 3), impossible)
    with pytest.raises(ValueError, match="correlations of class 4"):
        gaussians.sample([4], generator)


def test_a_meter_measures_them(network, images):
    labels = torch.arange(24) % 3
    meter = ClassMeter(feature_point(network), network.pool, correlated=True)
    run_meters(network, [(images[:10], labels[:10]), (images[10:], labels[10:])], [meter])
    with torch.no_grad():
        features = network.eval().pooled(images)
    found = meter.gaussians().correlation
    assert found is not None
    for label in range(3):
        covariance = torch.cov(features[labels == label].double().T, correction=0)
        assert torch.allclose(found[label], as_correlation(covariance).float(), atol=1e-3)


def test_replacing_keeps_them_where_both_have_them(generator):
    one, _ = correlated(generator)
    other, _ = correlated(generator, classes=2)
    both = one.replace(ClassGaussians((2, 5), (9, 9), other.mean, other.std, other.correlation))
    assert both.labels == (0, 1, 2, 5)
    assert torch.equal(both.correlation[:2], one.correlation[:2])
    assert torch.equal(both.correlation[2:], other.correlation)
    assert one.replace(ClassGaussians((5,), (9,), other.mean[:1], other.std[:1])).correlation is None


def test_a_memory_keeps_them_to_the_bit_and_refuses_what_is_no_correlation(generator, tmp_path):
    memory = Memory()
    memory.gaussians, _ = correlated(generator)
    memory.save(tmp_path / "memory.safetensors")
    loaded = Memory.load(tmp_path / "memory.safetensors").gaussians
    assert torch.equal(loaded.correlation, memory.gaussians.correlation)
    assert "correlation" in memory.describe()[0].detail
    parts = memory.gaussians
    photographs = torch.rand(3, 4, 4, generator=generator)
    for wrong, message in ((photographs, "symmetric"), (3 * parts.correlation, "from -1 to 1"), (parts.std, "must be")):
        with pytest.raises(ValueError, match=message):
            ClassGaussians(parts.labels, parts.counts, parts.mean, parts.std, wrong)
