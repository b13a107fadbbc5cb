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
    invert_layerwise,
    invert_pixels,
    invert_pyramid,
    train_generator,
)

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


@pytest.mark.parametrize("start", [1, 2, 4])
@pytest.mark.parametrize("prior", ["none", "dense"])
def test_the_result_is_that_of_the_top_as_a_network_of_its_own(classifier, layers, targets, start, prior):
    from remix.networks.cut import cut

    settings = replace(SHORT, labels=0.5, prior=PriorSettings(prior), micro_batch=5)
    top = cut(classifier.backbone, start)[1]
    own = {key: layer for key, layer in layers.items() if int(key.split(".")[1][0]) >= start}
    expected = dream(Knowledge(top, own, classifier.head), targets, settings)
    found = dream(Knowledge(classifier.backbone, layers, classifier.head, start=start), targets, settings)
    assert torch.equal(found.images, expected.images)
    assert found.history == expected.history


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
