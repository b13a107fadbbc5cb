"""Networks without BatchNorm layers, of tokens or of maps: statistics are those that were measured."""

from dataclasses import replace

import pytest
import torch

from remix.inversion import (
    Checkpoint,
    Knowledge,
    LayerwiseSettings,
    PixelSettings,
    PriorSettings,
    Schedule,
    Targets,
    invert_layerwise,
    invert_pixels,
)
from remix.inversion.layerwise import _Plan
from remix.networks.views import TOKEN_CHANNELS, TOKEN_POSITIONS
from remix.statistics import LayerMeter, run_meters
from tests.tiny_transformer import PlainConvolutions, TinyTransformer

SETTINGS = LayerwiseSettings(block=Schedule(60, 0.1), refine=Schedule(60, 0.03), statistics=0.01, input=0.01)
NETWORKS = {
    "token channels": lambda: TinyTransformer(TOKEN_CHANNELS),
    "token positions": lambda: TinyTransformer(TOKEN_POSITIONS),
    "maps": PlainConvolutions,
}


def pictures(count, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 1, 8, 8, generator=generator, dtype=torch.float64).cumsum(-1) / 2


@pytest.fixture(scope="module", params=NETWORKS)
def knowledge(request) -> Knowledge:
    """The network with what was measured where it says that it is worth it."""
    backbone = NETWORKS[request.param]()
    views = dict.fromkeys(view for _, view in backbone.watched())
    meters = [
        LayerMeter([point for point, own in backbone.watched() if own == view], view, ("laplace", "dense"))
        for view in views
    ]
    run_meters(backbone, pictures(600, 1).split(200), meters)
    return Knowledge(backbone, {key: layer for meter in meters for key, layer in meter.statistics().items()})


@pytest.fixture
def targets(knowledge) -> Targets:
    with torch.no_grad():
        return Targets(torch.zeros(24, dtype=torch.int64), knowledge.backbone.pooled(pictures(24, 2)))


def dream(knowledge, targets, settings=SETTINGS, **options):
    return invert_layerwise(knowledge, targets, torch.Generator().manual_seed(0), settings, **options)


def distance(knowledge, images, targets):
    with torch.no_grad():
        return (knowledge.backbone.pooled(images, knowledge.start) - targets.features).square().mean().item()


def test_moments_are_those_measured_where_the_network_is_watched(knowledge):
    watched = [f"{point}:{view.name}" for point, view in knowledge.backbone.watched()]
    assert [layer.key for layer in knowledge.moments] == watched
    assert [layer.key for layer in knowledge.prior_layers(PriorSettings("laplace"))] == watched
    names = [block.name for block in knowledge.backbone.blocks()[1:]]
    assert list(knowledge.block_inputs) == names


@pytest.mark.slow
@pytest.mark.parametrize("prior", ["none", "diagonal", "laplace", "dense"])
@pytest.mark.parametrize("start", [0, 1])
def test_dreams_have_the_features_and_statistics_asked_for(knowledge, targets, prior, start):
    knowledge = Knowledge(knowledge.backbone, knowledge.layers, start=start)
    settings = replace(SETTINGS, prior=PriorSettings(prior, "typical", 0.01))
    found = dream(knowledge, targets, settings)
    blind = torch.randn(found.images.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    assert distance(knowledge, found.images, targets) < 0.1 * distance(knowledge, blind, targets)
    top = found.history[knowledge.backbone.blocks()[-1].name]
    assert min(top["features"]) < 0.1 * top["features"][0]
    refined = found.history["refine"]
    assert min(refined["loss"]) < 0.5 * refined["loss"][0]
    assert refined["statistics"][-1] < refined["statistics"][0]
    assert ("prior" in refined) == (prior != "none")
    assert ("input" in refined) == bool(start)


@pytest.mark.parametrize("form", ["nll", "typical", "kl"])
def test_every_form_of_a_prior(knowledge, targets, form):
    quick = replace(SETTINGS, block=Schedule(2, 0.1), refine=Schedule(2, 0.1))
    for kind in ("diagonal", "laplace", "dense"):
        found = dream(knowledge, targets, replace(quick, prior=PriorSettings(kind, form)))
        assert bool(torch.isfinite(found.images).all())


def test_a_block_begins_with_the_mean_and_spread_of_its_real_input(knowledge, targets):
    top = knowledge.backbone.blocks()[-1]
    many = Targets(targets.labels.repeat(40), targets.features.repeat(40, 1))
    phase = _Plan(knowledge, SETTINGS).phases(many, "")[0]
    begin = phase.build(None, torch.Generator().manual_seed(0)).variable.tensors[0]
    assert begin.shape == (960, *knowledge.block_shapes[-1])
    layer = knowledge.block_inputs[top.name]
    rows = layer.view.rows(begin)
    torch.testing.assert_close(rows.mean(0), layer.mean, atol=0.05, rtol=0.05)
    torch.testing.assert_close(rows.var(0), layer.variance, atol=0.05, rtol=0.1)


def test_the_input_of_a_block_enters_once(knowledge, targets):
    """It is among the moments of such a network, and a term of its own."""
    top = knowledge.backbone.blocks()[-1]
    run = _Plan(knowledge, SETTINGS).phases(targets, "")[0].build(None, torch.Generator())
    layers = [layer.key for term in run.terms if term.name == "statistics" for layer in term.loss.layers]
    assert knowledge.block_inputs[top.name].key not in layers
    assert [term.name for term in run.terms if term.name == "input"] == ["input"]


@pytest.mark.parametrize("micro_batch", [None, 7])
def test_an_interrupted_run_goes_on_with_the_same_bits(knowledge, targets, tmp_path, micro_batch):
    quick = replace(SETTINGS, block=Schedule(3, 0.1), refine=Schedule(4, 0.1), micro_batch=micro_batch)
    whole = dream(knowledge, targets, quick)
    for stop in (knowledge.backbone.blocks()[1].name, "refine"):

        def interrupt(progress, stop=stop):
            if progress.phase == stop and progress.step.step == 1:
                raise KeyboardInterrupt

        half = dream(knowledge, targets, quick, progress=interrupt)
        assert not half.finished
        half.checkpoint.save(tmp_path / "half.safetensors")
        rest = dream(knowledge, targets, quick, resume=Checkpoint.load(tmp_path / "half.safetensors"))
        assert torch.equal(rest.images, whole.images)


def test_the_micro_batch_changes_only_rounding(knowledge, targets):
    quick = replace(SETTINGS, block=Schedule(3, 0.1), refine=Schedule(3, 0.1))
    whole, parts = (dream(knowledge, targets, replace(quick, micro_batch=size)) for size in (None, 5))
    torch.testing.assert_close(parts.images, whole.images, rtol=1e-6, atol=1e-6)


def test_pixels_are_held_to_the_measured_statistics_too(knowledge):
    head = torch.nn.Linear(knowledge.backbone.feature_dim, 3).double()
    known = Knowledge(knowledge.backbone, knowledge.layers, head)
    settings = PixelSettings(schedule=Schedule(40, 0.1), statistics=0.1, prior=PriorSettings("laplace", "typical", 0.1))
    found = invert_pixels(known, Targets(torch.arange(9) % 3), torch.Generator().manual_seed(0), settings)
    values = found.history["pixels"]
    assert values["statistics"][-1] < values["statistics"][0]
    assert values["labels"][-1] < values["labels"][0]


def test_block_inputs_that_were_not_measured_are_named_with_their_view(knowledge, targets):
    blind = Knowledge(knowledge.backbone)
    view = knowledge.backbone.blocks()[1].view.name
    with pytest.raises(ValueError, match=rf"was not measured: measure backbone\.block_inputs\(\) with the {view} view"):
        dream(blind, targets)
