"""Inversion that starts inside the network: the unknowns are what a later block receives."""

from dataclasses import replace

import pytest
import torch

from remix.inversion import (
    Checkpoint,
    GeneratorSettings,
    Knowledge,
    LayerwiseSettings,
    PixelSettings,
    PriorSettings,
    PyramidSettings,
    Schedule,
    feature_targets,
    frozen,
    invert_layerwise,
    invert_pixels,
    invert_pyramid,
    train_generator,
)
from remix.networks import Hooks

SHORT = LayerwiseSettings(block=Schedule(3, 0.3), refine=Schedule(4, 0.1), prior=PriorSettings("laplace", "typical"))


@pytest.fixture
def targets(gaussians):
    return feature_targets(torch.arange(12) % 4, gaussians, None, torch.Generator().manual_seed(4))


def dream(knowledge, targets, settings=SHORT, **options):
    return invert_layerwise(knowledge, targets, torch.Generator().manual_seed(0), settings, **options)


@pytest.fixture
def inside(classifier, layers) -> Knowledge:
    return Knowledge(classifier.backbone, layers, classifier.head, start=2)


def test_only_blocks_and_statistics_from_there_on_count(inside, targets):
    seen = []
    found = dream(inside, targets, progress=seen.append)
    assert found.start == 2
    assert found.images.shape == (12, *inside.block_shapes[2])
    assert list(found.history) == ["convolutions.4", "convolutions.3", "convolutions.2", "refine"]
    assert [layer.point.module for layer in inside.moments] == [f"convolutions.{i}.bn" for i in (2, 3, 4)]
    assert list(inside.block_inputs) == ["convolutions.2", "convolutions.3", "convolutions.4"]
    assert not any("convolutions.1" in key for key in inside.layers)
    by_phase = {progress.phase: list(progress.step.values) for progress in seen}
    assert by_phase["convolutions.2"] == ["features", "statistics", "input", "prior"]
    assert by_phase["refine"] == ["features", "statistics", "prior", "input"]


def test_an_interrupted_run_goes_on_with_the_same_bits(inside, targets, tmp_path):
    whole = dream(inside, targets)

    def interrupt(progress):
        if progress.phase == "refine" and progress.step.step == 1:
            raise KeyboardInterrupt

    half = dream(inside, targets, progress=interrupt)
    assert (half.finished, half.start, half.images.shape) == (False, 2, whole.images.shape)
    half.checkpoint.save(tmp_path / "half.safetensors")
    rest = dream(inside, targets, resume=Checkpoint.load(tmp_path / "half.safetensors"))
    assert torch.equal(rest.images, whole.images)


def test_strategies_that_make_images_refuse_in_one_sentence(inside, targets):
    runs = [
        lambda: invert_pixels(inside, targets, torch.Generator(), PixelSettings()),
        lambda: invert_pyramid(inside, targets, torch.Generator(), PyramidSettings()),
        lambda: train_generator(inside, torch.Generator(), GeneratorSettings()),
    ]
    for run in runs:
        with pytest.raises(ValueError, match="makes images, not the inputs of block 2: use invert_layerwise"):
            run()


def test_a_block_that_is_not_there_is_refused(classifier):
    for start in (-1, 5):
        with pytest.raises(ValueError, match=rf"start must be one of the blocks 0\.\.4, got {start}"):
            Knowledge(classifier.backbone, start=start)


def test_the_input_of_the_first_block_has_to_be_measured(classifier, layers, targets):
    known = {key: layer for key, layer in layers.items() if not key.startswith("convolutions.2:input")}
    with pytest.raises(ValueError, match=r"input of block 'convolutions\.2' was not measured: .*block_inputs\(2\)"):
        dream(Knowledge(classifier.backbone, known, start=2), targets)


def kl(x, layer):
    """KL divergence of the moments of an activation from those of a layer, per coordinate."""
    rows = layer.view.rows(x)
    ratio = (rows.var(0, correction=0) + 1e-8) / layer.variance
    return 0.5 * (ratio - 1 - ratio.log() + (rows.mean(0) - layer.mean).square() / layer.variance).mean()


def plainly(forward, x, target, layers, entering, weight, schedule):
    """One phase with hooks, autograd and torch's Adam; the best point."""
    x = x.clone().requires_grad_()
    adam, best, least = torch.optim.Adam([x]), None, float("inf")
    for step in range(schedule.steps):
        network, run = forward
        with Hooks(network, [layer.point for layer in layers]) as hooks:
            output = run(x)
        loss = (output - target).square().mean() + weight * kl(x, entering)
        loss = loss + weight * sum(kl(hooks[layer.point], layer) for layer in layers)
        if loss.item() < least:
            best, least = x.detach().clone(), loss.item()
        adam.param_groups[0]["lr"] = schedule(step)
        adam.zero_grad()
        loss.backward()
        adam.step()
    return best


def test_the_result_is_that_of_a_plain_loop_over_the_upper_blocks(inside, targets):
    settings = replace(SHORT, prior=PriorSettings("none"), boosting=False)
    generator = torch.Generator().manual_seed(0)
    backbone, blocks = inside.backbone, inside.backbone.blocks()
    above = targets.features
    with frozen(backbone):
        for number in (4, 3, 2):
            entering = inside.block_inputs[blocks[number].name]
            noise = torch.randn(12, *inside.block_shapes[number], generator=generator, dtype=torch.float64)
            x = noise * entering.variance.sqrt()[:, None, None] + entering.mean[:, None, None]
            run = blocks[number] if number < 4 else lambda x: backbone.pool(blocks[4](x))
            own = [layer for layer in inside.moments if layer.point.module == f"convolutions.{number}.bn"]
            above = plainly((backbone, run), x, above, own, entering, 0.25 * 3 * 20, settings.block)
        run = (backbone, lambda x: backbone.pooled(x, 2))
        expected = plainly(run, above, targets.features, inside.moments, entering, 0.25, settings.refine)
    torch.testing.assert_close(dream(inside, targets, settings).images, expected)
