"""What a user may rely on when fitting."""

import math

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from remix.laplace import LaplaceCovariance, kernels
from remix.laplace.basis import Dct2
from remix.laplace.fitting import FrobeniusRecipe, fit, fit_covariance


@pytest.fixture(scope="module")
def digits():
    x = torch.tensor(load_digits().data, dtype=torch.float32)
    return x[torch.randperm(len(x), generator=torch.Generator().manual_seed(0))]


def _held_gain(normal, diagonal_mean, diagonal_variance, rows):
    diagonal = torch.distributions.Normal(diagonal_mean, diagonal_variance.sqrt()).log_prob(rows).sum(1)
    return float((normal.log_prob(rows) - diagonal).mean()) / rows.shape[1]


def _smooth_maps(rows, layout, seed=0):
    """Maps with a smooth part that channels share, and noise."""
    rng = torch.Generator().manual_seed(seed)
    channels, height, width = layout
    y = torch.randn(rows, 1, height, width, generator=rng) / (1 + torch.arange(height)[:, None] + torch.arange(width))
    shared = Dct2((1, height, width)).inverse(y.flatten(1)).reshape(rows, 1, height, width)
    return (3 * shared + 0.1 * torch.randn(rows, channels, height, width, generator=rng)).flatten(1)


def test_recovers_a_laplace_model(path, model):
    truth = model(30)
    rng = torch.Generator().manual_seed(1)
    x, held = truth.rsample((700,), generator=rng), truth.rsample((2000,), generator=rng)
    normal = fit(x)
    best = _held_gain(truth, truth.mean, truth.variance, held)
    assert _held_gain(normal, x.mean(0), x.var(0), held) > 0.9 * best
    assert normal.report.scale == 1
    torch.testing.assert_close(normal.variance, x.var(0, correction=0), rtol=0.02, atol=0)
    torch.testing.assert_close(normal.mean, x.mean(0))


def test_auto_never_trades_the_pixel_diagonal_for_a_worse_basis(digits):
    """Digits live at fixed places of the image: there the DCT loses even to the diagonal of the pixels."""
    normal = fit(digits[:600], layout=(1, 8, 8))
    assert normal.basis is None
    assert normal.report.train_gain > 0.1
    assert fit(digits[:600], layout=(1, 8, 8), transform="dct").basis is not None


def test_digits_beat_the_diagonal_where_the_paper_does_not(digits):
    train, held = digits[:1200], digits[1200:]
    ours, published = fit(train), fit(train, "frobenius")
    diagonal = fit(train[:5])  # too few rows to validate
    assert diagonal.weight.eq(0).all()
    report = ours.report
    assert report.train_gain > 0.15
    assert _held_gain(ours, ours.loc, ours.variance, held) > 0.1  # over the same variances without correlations
    assert published.report.train_gain < 0
    assert published.report.frobenius_error < 1
    assert (ours.weight[train.std(0) == 0] == 0).all()


def test_few_rows_of_digits_are_validated(digits):
    report = fit(digits[:100]).report
    assert 0 < report.scale <= 1
    assert report.validation_gain is not None
    assert report.validation_gain > 0


@pytest.mark.parametrize("rows", [60, 600])
def test_independent_features_give_exactly_the_diagonal(rows):
    x = torch.randn(rows, 80, generator=torch.Generator().manual_seed(rows)).relu()
    normal = fit(x)
    assert normal.report.scale == 0
    assert normal.weight.eq(0).all()


def test_maps_take_the_cosine_basis():
    layout = (4, 8, 8)
    x, held = _smooth_maps(100, layout), _smooth_maps(200, layout, seed=1)
    gains = {}
    for transform in ("auto", None):
        normal = fit(x, layout=layout, transform=transform)
        gains[transform] = _held_gain(normal, x.mean(0), x.var(0), held)
        assert normal.report.validation_gain == pytest.approx(gains[transform], abs=0.15)
    assert normal.basis is None
    assert fit(x, layout=layout).basis == Dct2(layout)
    assert gains["auto"] > gains[None] > 0.3


def test_large_dimension_with_and_without_layout():
    layout = (6, 16, 16)
    x, held = _smooth_maps(60, layout), _smooth_maps(100, layout, seed=1)
    with_layout = fit(x, layout=layout, transform=None)
    without = fit(x)
    gains = [_held_gain(p, x.mean(0), x.var(0), held) for p in (with_layout, without)]
    assert min(gains) > 0.3


def test_same_generator_same_fit_whatever_the_threads(digits):
    x = digits[:150]
    threads = torch.get_num_threads()
    fits = []
    for count, seed in ((1, 5), (2, 5), (1, 6), (1, 7), (1, 8), (1, 9)):
        torch.set_num_threads(count)
        fits.append(fit(x, generator=torch.Generator().manual_seed(seed)))
    torch.set_num_threads(threads)
    assert torch.equal(fits[0].weight, fits[1].weight)
    assert torch.equal(fits[0].coord, fits[1].coord)
    assert fits[0].report.scale == fits[1].report.scale
    assert not all(torch.equal(fits[0].coord, other.coord) for other in fits[2:])  # one other may choose the same


@pytest.mark.parametrize(("dtype", "wanted"), [(torch.float64, torch.float64), (torch.bfloat16, torch.float32), (torch.float16, torch.float32)])  # fmt: skip  # noqa: E501
def test_parameters_have_the_dtype_of_the_rows(digits, dtype, wanted):
    normal = fit(digits[:60].to(dtype))
    assert {normal.loc.dtype, normal.diag.dtype, normal.weight.dtype, normal.coord.dtype} == {wanted}


def test_batches_memory_maps_and_strides_give_the_same_fit(digits, tmp_path):
    x = digits[:120]
    np.save(tmp_path / "x.npy", x.numpy())
    wanted = fit(x)
    for source in (np.load(tmp_path / "x.npy", mmap_mode="r"), x.split(50), x.T.contiguous().T):
        assert torch.equal(fit(source).weight, wanted.weight)


def test_native_and_torch_paths_reach_the_same_likelihood(model):
    if kernels.native() is None:
        pytest.skip("native library not built")
    x = model(20).rsample((100,), generator=torch.Generator().manual_seed(3))
    reports = {}
    for name in ("native", "torch"):
        with kernels.use(name):
            reports[name] = fit(x).report
    assert reports["native"].train_log_likelihood == pytest.approx(reports["torch"].train_log_likelihood, abs=0.02)


def test_report_is_consistent_and_readable(digits):
    x = digits[:200]
    phases = []
    normal = fit(x, progress=phases.append)
    report = normal.report
    assert report.train_log_likelihood == pytest.approx(float(normal.log_prob(x).mean()) / 64, abs=1e-4)
    assert {"prepare", "order", "scale", "report"} <= set(phases) == set(report.seconds)
    assert report.parameters == 4 * 64
    sample = torch.cov(x.T, correction=0)
    wanted = (normal.covariance_matrix - sample).norm() / sample.norm()
    assert report.frobenius_error == pytest.approx(float(wanted), rel=1e-3)
    text = str(report)
    assert "200 rows" in text
    assert f"{report.validation_gain:+.4f} over the diagonal" in text


def test_a_frobenius_fit_reports_its_likelihood_and_start(digits):
    x = digits[:300]
    normal = fit(x, "frobenius", recipe=FrobeniusRecipe(steps=20, batch_size=64))
    assert normal.report.train_log_likelihood == pytest.approx(float(normal.log_prob(x).mean()) / 64, rel=1e-4)
    assert normal.report.start == "gradient descent from a line"


def test_a_covariance_matrix_is_fitted_with_its_variances(path, model):
    truth = model(25)
    mean = torch.randn(25, dtype=torch.float64)
    normal = fit_covariance(truth.covariance_matrix, mean)
    torch.testing.assert_close(normal.variance, truth.variance)
    assert torch.equal(normal.mean, mean)
    assert normal.report.frobenius_error < 0.1
    floats = fit_covariance(truth.covariance_matrix.float(), samples=100)
    assert floats.weight.dtype == torch.float32
    assert "100 rows" in str(floats.report)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_very_few_dimensions_are_fitted(size):
    x = torch.randn(50, 1, generator=torch.Generator().manual_seed(0)) + 0.1 * torch.randn(50, size)
    normal = fit(x)
    assert torch.isfinite(normal.log_prob(x)).all()
    if size > 1:
        assert normal.report.train_gain > 0.3
    assert torch.isfinite(fit_covariance(torch.eye(size)).log_prob(x)).all()


def test_dead_features_have_no_weight_and_do_not_hurt_the_others(digits):
    x = torch.zeros(100, 30)
    x[:, ::3] = torch.randn(100, 1) + 0.1 * torch.randn(100, 10)
    normal = fit(x)
    assert normal.report.scale > 0.5
    assert (normal.weight[1::3] == 0).all()
    assert torch.isfinite(normal.log_prob(x + 0.01)).all()


BAD = [
    (torch.zeros(5), {}, "rows, features"),
    (torch.zeros(2, 3, 4), {}, "flatten"),
    (torch.zeros(0, 3), {}, "at least 2 rows"),
    (torch.randn(1, 3), {}, "at least 2 rows"),
    (torch.zeros(5, 0), {}, "1 feature"),
    (torch.ones(5, 3, dtype=torch.int64), {}, "int64"),
    (torch.ones(5, 3), {}, "distinct rows"),
    (torch.tensor([[0.0, math.nan], [1.0, 2.0]]), {}, "feature 1"),
    (torch.tensor([[0.0, math.inf], [1.0, 2.0]]), {}, "finite"),
    (torch.randn(9, 12), {"layout": (2, 2, 2)}, "multiplies to 8"),
    (torch.randn(9, 12), {"layout": (12, 1)}, "layout"),
    (torch.randn(9, 12), {"transform": "dct"}, "layout"),
    (torch.randn(9, 12), {"transform": "fft"}, "transform"),
    (torch.randn(9, 12), {"objective": "nll"}, "objective"),
    (torch.randn(9, 12), {"recipe": FrobeniusRecipe()}, "frobenius"),
    ([], {}, "without any batch"),
    ([torch.zeros(2, 3), torch.zeros(2, 4)], {}, "one number of features"),
    (7, {}, "iterable of batches"),
    (np.zeros((4, 2), dtype=np.int32), {}, "int32"),
]


@pytest.mark.parametrize(("x", "options", "message"), BAD)
def test_bad_rows_and_options_are_refused(x, options, message):
    with pytest.raises(ValueError, match=message):
        fit(x, **options)


@pytest.mark.parametrize(
    ("matrix", "options", "message"),
    [
        (torch.zeros(3, 4), {}, "square"),
        (torch.eye(3, dtype=torch.int64), {}, "floating"),
        (torch.full((2, 2), math.nan), {}, "finite"),
        (torch.tensor([[1.0, 0.5], [0.1, 1.0]]), {}, "symmetric"),
        (torch.zeros(3, 3), {}, "positive"),
        (torch.eye(3), {"mean": torch.zeros(2)}, "mean"),
        (torch.eye(3), {"samples": 0}, "samples"),
    ],
)
def test_a_bad_matrix_is_refused(matrix, options, message):
    with pytest.raises(ValueError, match=message):
        fit_covariance(matrix, **options)


def test_trace_shows_every_step_up_to_the_result(model):
    x = model(30, dtype=torch.float32).rsample((600,), generator=torch.Generator().manual_seed(4))
    seen = []
    normal = fit(x, trace=seen.append)
    assert [s.step for s in seen] == list(range(seen[-1].steps + 1))
    last = seen[-1].normal()
    assert torch.equal(last.weight, normal.weight)
    values = [float(s.normal().log_prob(x).mean()) for s in (seen[0], seen[-1])]
    assert values[0] < values[1]
    del seen[:]
    recipe = FrobeniusRecipe(steps=5)
    normal = fit(x, "frobenius", recipe=recipe, trace=lambda s: seen.append((s.step, s.steps, s.normal())))
    assert [(step, steps) for step, steps, _ in seen] == [(step, 5) for step in range(6)]
    assert torch.equal(seen[0][2].weight, torch.full((30,), 0.1))
    assert torch.equal(seen[-1][2].coord, normal.coord)


@pytest.mark.parametrize("dim", [3, 40, 130])
def test_a_fit_that_starts_from_known_covariances_is_at_least_as_likely_as_each_of_them(dim):
    generator = torch.Generator().manual_seed(dim)
    first = LaplaceCovariance(*(torch.rand(3, dim, generator=generator, dtype=torch.float64) + 0.1))
    second = LaplaceCovariance(*(torch.rand(3, dim, generator=generator, dtype=torch.float64) + 0.1))
    target = 0.8 * first.to_dense() + 0.2 * second.to_dense()

    def nll(matrix):
        ratio = (target.diagonal() / matrix.diagonal()).sqrt()
        matrix = ratio[:, None] * matrix * ratio  # its correlations, the target's variances
        return torch.logdet(matrix) + torch.linalg.solve(matrix, target).trace()

    cold, warm = fit_covariance(target), fit_covariance(target, known=[first, second])
    least = min(nll(one.to_dense()) for one in (cold.covariance, first, second))
    assert nll(warm.covariance.to_dense()) <= least + 1e-9 * dim
    torch.testing.assert_close(warm.variance, target.diagonal())


def test_a_known_covariance_that_is_the_answer_is_kept():
    generator = torch.Generator().manual_seed(0)
    known = LaplaceCovariance(*(torch.rand(3, 60, generator=generator, dtype=torch.float64) + 0.1))
    found = fit_covariance(known.to_dense(), known=[known])
    torch.testing.assert_close(found.covariance_matrix, known.to_dense(), atol=1e-6, rtol=1e-6)
    assert found.report.start == "known chain 1"


def test_the_papers_fit_in_passes_is_in_the_basis_that_was_asked_for():
    """Fitted in pixels and handed out as if in the DCT basis, it once was of other data altogether."""
    generator = torch.Generator().manual_seed(0)
    rows = 3 + torch.randn(1000, 2 * 8 * 8, generator=generator).cumsum(1) / 5
    recipe = FrobeniusRecipe(steps=30)
    at_hand, in_passes = (
        fit(rows, "frobenius", layout=(2, 8, 8), transform="dct", recipe=recipe, memory=memory)
        for memory in (1 << 30, 160_000)
    )
    torch.testing.assert_close(in_passes.loc, rows.mean(0), atol=1e-3, rtol=1e-3)
    for normal in (at_hand, in_passes):
        likelihood = float(normal.log_prob(rows).mean()) / rows.shape[1]
        assert normal.report.train_log_likelihood == pytest.approx(likelihood, abs=1e-3)
