from __future__ import annotations

import pytest
import torch
from torch import nn

from remix.statistics import (
    ClassMeter,
    Hooks,
    LayerMeter,
    NonFiniteActivationError,
    batchnorm_points,
    feature_point,
    measure_layers,
    run_meters,
)

POINTS = ["stem.bn:input", "stage_2.0.bn2:input"]


def captured(network: nn.Module, images: torch.Tensor, point: str) -> torch.Tensor:
    network.eval()
    with Hooks(network, [point]) as hooks, torch.no_grad():
        network(images)
    return hooks[point]


def test_moments_are_those_of_all_activations_at_once(network, images):
    layers = measure_layers(network, images.split(7), POINTS, kinds=("dense",))
    assert list(layers) == [f"{point}:channels" for point in POINTS]
    for point in POINTS:
        layer = layers[f"{point}:channels"]
        rows = captured(network, images, point).movedim(1, -1).reshape(-1, layer.dim).double()
        assert torch.allclose(layer.mean, rows.mean(0).float(), atol=1e-6)
        assert torch.allclose(layer.covariance, rows.mT.cov(correction=0).float(), atol=1e-6)
        assert layer.images == len(images)
        assert layer.shape == tuple(captured(network, images, point).shape[1:])


def test_the_laplace_normal_has_the_measured_moments_and_beats_the_diagonal(network, images):
    layers = measure_layers(network, images.split(8), POINTS)
    for key, layer in layers.items():
        assert torch.allclose(layer.normal.loc, layer.mean, atol=1e-6)
        assert torch.allclose(layer.normal.variance, layer.variance, rtol=1e-4)
        rows = layer.view.rows(captured(network, images, key.rpartition(":")[0]))
        gain = layer.prior("laplace").log_prob(rows).mean() - layer.prior("diagonal").log_prob(rows).mean()
        assert gain > 0


def test_maps_are_fitted_to_a_bounded_number_of_rows(network, images):
    layers = measure_layers(network, images.split(8), ["stage_2.0.bn2:input"], "map", rows=16)
    (layer,) = layers.values()
    assert layer.dim == 8 * 8 * 8
    flat = captured(network, images, "stage_2.0.bn2:input").flatten(1)
    assert torch.allclose(layer.mean, flat.mean(0), atol=1e-5)
    assert torch.allclose(layer.variance, flat.var(0, correction=0), rtol=1e-4)
    assert torch.allclose(layer.normal.loc, layer.mean, atol=1e-6)
    assert torch.isfinite(layer.prior("laplace").log_prob(flat)).all()


def test_the_basis_of_maps_can_be_chosen():
    network, maps = nn.Identity(), torch.randn(20, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    for transform, size, expected in (("auto", 8, True), ("auto", 4, False), (None, 8, False), ("dct", 4, True)):
        batch = maps[..., :size, :size]
        (layer,) = measure_layers(network, [batch], [":input"], "map", transform=transform).values()
        assert (layer.normal.basis is not None) == expected
    with pytest.raises(ValueError, match="transform must be"):
        measure_layers(network, [maps], [":input"], "map", transform="fourier")


def test_several_meters_share_one_pass(network, images):
    passes = []
    handle = network.stem.register_forward_hook(lambda *_: passes.append(1))
    labels = torch.arange(24) % 3
    batches = [(images[:12], labels[:12]), (images[12:], labels[12:])]
    channels = LayerMeter(POINTS, "channels", ())
    maps = LayerMeter(POINTS, "map", ())
    classes = ClassMeter(feature_point(network), network.pool)
    assert run_meters(network, batches, [channels, maps, classes]) == 24
    handle.remove()
    assert len(passes) == 2
    assert list(maps.statistics()) == [f"{point}:map" for point in POINTS]
    assert classes.gaussians().labels == (0, 1, 2)
    assert channels.statistics()["stem.bn:input:channels"].kinds == ("diagonal",)


def test_the_network_is_unchanged_modes_included(network, images):
    network.train()
    network.stem.eval()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    modes = [module.training for module in network.modules()]
    measure_layers(network, images.split(8), POINTS, kinds=())
    assert [module.training for module in network.modules()] == modes
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())


def test_batches_may_be_of_one_image(network, images):
    one, many = (measure_layers(network, images[:6].split(size), POINTS, kinds=("dense",)) for size in (1, 6))
    for key in many:
        assert torch.allclose(one[key].covariance, many[key].covariance, atol=1e-6)


def test_a_single_image_has_channel_statistics_but_no_map_statistics(network, images):
    layers = measure_layers(network, [images[:1]], POINTS)
    assert all(torch.isfinite(layer.normal.variance).all() for layer in layers.values())
    with pytest.raises(ValueError, match=r"'stem.bn:input': nothing varies.*at least two"):
        measure_layers(network, [images[:1]], POINTS, "map")


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_activations_that_are_not_finite_name_the_first_layer(network, images, bad):
    with torch.no_grad():
        network.stage_1[1].conv2.weight[0, 0, 0, 0] = bad
    with pytest.raises(NonFiniteActivationError, match=r"'stage_1.1.bn2:input'.*batch 0, first in image 0") as caught:
        measure_layers(network, images.split(8), reversed(batchnorm_points(network)), kinds=())
    assert str(caught.value.point) == "stage_1.1.bn2:input"


def test_zero_variance_channels_get_a_small_variance_and_no_correlation(network, images):
    with torch.no_grad():
        network.stem.conv.weight[1] = 0
    (layer,) = measure_layers(network, images.split(8), ["stem.bn:input"], kinds=("laplace", "dense")).values()
    others = torch.tensor([0, 2, 3])
    assert layer.variance[1] == pytest.approx(float(layer.variance[others].sum() / 4 / 25), rel=1e-5)
    assert torch.equal(layer.covariance[1, others], torch.zeros(3))
    sigma = layer.normal.covariance_matrix
    assert torch.allclose(sigma[1, others], torch.zeros(3), atol=1e-3 * float(sigma.diagonal().max()))
    for kind in layer.kinds:
        assert torch.isfinite(layer.prior(kind).log_prob(torch.randn(4, 4))).all()


def test_bad_requests_are_told_before_or_at_the_first_batch(network, images):
    with pytest.raises(ValueError, match="no kind of covariance 'full'"):
        measure_layers(network, [images], POINTS, kinds=("full",))
    with pytest.raises(ValueError, match="unknown view"):
        measure_layers(network, [images], POINTS, "pixels")
    with pytest.raises(ValueError, match="no module"):
        measure_layers(network, [images], ["nothing:input"])
    with pytest.raises(ValueError, match=r"'stem.bn:input': view 'token-channels' reads"):
        measure_layers(network, [images], POINTS, "token-channels")
    with pytest.raises(ValueError, match=r"dense covariance at 'stem.bn:input' would have 4096 x 4096 .*'laplace'"):
        measure_layers(network, [torch.randn(2, 3, 32, 32)], ["stem.bn:input"], "map", ("dense",))
    with pytest.raises(ValueError, match="batches is empty"):
        measure_layers(network, [], POINTS)


def test_a_module_that_runs_twice_is_refused():
    shared = nn.ReLU()
    network = nn.Sequential(nn.Linear(3, 3), shared, nn.Linear(3, 3), shared)
    with pytest.raises(ValueError, match="'1' ran 2 times"):
        measure_layers(network, [torch.randn(5, 3)], ["1:input"])


def test_a_container_whose_parts_are_called_one_by_one_is_told(network, images):
    with pytest.raises(ValueError, match=r"'stage_1' does not run .* watch the first or the last"):
        measure_layers(network, [images], ["stage_1:output"])


def test_tokens_are_measured_by_position_and_by_channel():
    network = nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5))
    tokens = torch.randn(30, 7, 6, generator=torch.Generator().manual_seed(0))
    for view, dim in (("token-positions", 7), ("token-channels", 5)):
        (layer,) = measure_layers(network, tokens.split(10), ["1:input"], view).values()
        assert layer.dim == layer.normal.event_shape[0] == dim


def test_float64_networks_give_float64_statistics():
    network = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).double()
    (layer,) = measure_layers(network, [torch.randn(50, 4, dtype=torch.float64)], ["1:input"]).values()
    assert layer.mean.dtype == layer.normal.loc.dtype == torch.float64
