from dataclasses import replace

import pytest
import torch

from remix.inversion import Knowledge, LayerwiseSettings, PriorSettings, Schedule, feature_targets, invert_layerwise

SHORT = LayerwiseSettings(block=Schedule(3, 0.3), refine=Schedule(4, 0.1), prior=PriorSettings("laplace", "typical"))


@pytest.fixture
def targets(gaussians):
    return feature_targets(torch.arange(12) % 4, gaussians, None, torch.Generator().manual_seed(4))


def test_published_settings_are_the_defaults():
    settings = LayerwiseSettings()
    assert (settings.block.steps, settings.block.rate, settings.block.milestones) == (50, 0.8, ())
    assert settings.statistics * 16 * settings.block_factor == 80
    assert settings.batch == 4000
    assert settings.prior == PriorSettings("laplace", "nll", 0.5)


def test_blocks_from_the_top_down_then_refinement(knowledge, targets):
    seen = []
    dream = invert_layerwise(knowledge, targets, torch.Generator().manual_seed(0), SHORT, progress=seen.append)
    names = list(dict.fromkeys(progress.phase for progress in seen))
    assert names == [*(f"convolutions.{i}" for i in (4, 3, 2, 1, 0)), "refine"]
    assert dream.images.shape == (12, 1, 8, 8)
    assert dream.finished
    assert torch.equal(dream.labels, targets.labels)
    by_phase = {progress.phase: set(progress.step.values) for progress in seen}
    assert by_phase["convolutions.3"] == {"features", "statistics", "input", "prior"}
    assert by_phase["convolutions.0"] == {"features", "statistics", "prior"}  # there is no statistics of pixels
    assert by_phase["refine"] == {"features", "statistics", "prior"}


def test_labels_enter_the_refinement_when_they_have_a_weight(knowledge, targets):
    seen = []
    settings = replace(SHORT, labels=1.0, refine=Schedule(40, 0.1))
    invert_layerwise(knowledge, targets, torch.Generator().manual_seed(0), settings, progress=seen.append)
    values = [progress.step.values["labels"] for progress in seen if progress.phase == "refine"]
    assert values[-1] < values[0]
    assert all("labels" not in progress.step.values for progress in seen if progress.phase != "refine")
    blind = Knowledge(knowledge.backbone, knowledge.layers)
    with pytest.raises(ValueError, match="classify"):
        invert_layerwise(blind, targets, torch.Generator(), settings)


def test_a_block_is_held_to_its_own_layers_only(knowledge):
    reached = [{str(point) for point in knowledge.reached(i)} for i in range(5)]
    for i, points in enumerate(reached):
        assert points == {f"convolutions.{i}.bn:input", *([f"convolutions.{i}:input"] if i else [])}


def test_a_block_starts_with_the_statistics_of_its_real_input(knowledge, targets):
    from remix.inversion.layerwise import _Plan

    many = feature_like(targets, 600)
    phases = _Plan(knowledge, SHORT).phases(many, "")
    start = phases[1].build(torch.zeros(600, 12, 2, 2), torch.Generator().manual_seed(0)).variable.tensors[0]
    layer = knowledge.block_inputs["convolutions.3"]
    torch.testing.assert_close(start.mean((0, 2, 3)), layer.mean, atol=0.05, rtol=0.05)
    torch.testing.assert_close(start.var((0, 2, 3)), layer.variance, atol=0.05, rtol=0.1)


def feature_like(targets, count):
    from remix.inversion import Targets

    return Targets(targets.labels.repeat(count // 12), targets.features.repeat(count // 12, 1))


def test_the_target_of_a_block_is_what_was_found_for_the_one_above(knowledge, targets):
    """Inverting the last two blocks by hand gives what the strategy gives."""
    from remix.inversion import frozen, optimise
    from remix.inversion.layerwise import _Plan

    phases = _Plan(knowledge, SHORT).phases(targets, "")
    generator = torch.Generator().manual_seed(0)
    seen = {}

    def remember(progress):
        seen[progress.phase, progress.step.step] = progress.step.loss

    invert_layerwise(knowledge, targets, torch.Generator().manual_seed(0), SHORT, progress=remember)
    with frozen(*knowledge.networks):
        above = None
        for phase in phases[:3]:
            state, _ = optimise(phase.build(above, generator), generator)
            above = state.best[0]
            assert state.history["loss"] == [seen[phase.name, i] for i in range(3)]


@pytest.mark.parametrize("micro_batch", [1, 5])
def test_the_micro_batch_changes_only_rounding(knowledge, targets, micro_batch):
    whole = invert_layerwise(knowledge, targets, torch.Generator().manual_seed(0), SHORT)
    settings = replace(SHORT, micro_batch=micro_batch)
    parts = invert_layerwise(knowledge, targets, torch.Generator().manual_seed(0), settings)
    torch.testing.assert_close(parts.images, whole.images, rtol=1e-6, atol=1e-6)


def test_chunks_are_independent_batches(knowledge, targets):
    settings = replace(SHORT, batch=5)
    dream = invert_layerwise(knowledge, targets, torch.Generator().manual_seed(0), settings)
    assert dream.images.shape == (12, 1, 8, 8)
    assert "chunk 3/3: refine" in dream.history
    first = invert_layerwise(knowledge, targets[:4], torch.Generator().manual_seed(0), settings)
    assert torch.equal(first.images, dream.images[:4])


def test_an_interrupted_run_keeps_finished_chunks_and_goes_on_with_the_same_bits(knowledge, targets):
    settings = replace(SHORT, batch=6)
    whole = invert_layerwise(knowledge, targets, torch.Generator().manual_seed(0), settings)
    seen = []

    def interrupt(progress):
        seen.append(progress)
        if progress.phase == "chunk 2/2: convolutions.2":
            raise KeyboardInterrupt

    half = invert_layerwise(knowledge, targets, torch.Generator().manual_seed(0), settings, progress=interrupt)
    assert not half.finished
    assert torch.equal(half.images, whole.images[:6])
    assert torch.equal(half.labels, targets.labels[:6])
    rest = invert_layerwise(knowledge, targets, torch.Generator(), settings, resume=half.checkpoint)
    assert torch.equal(rest.images, whole.images)


def test_the_network_is_frozen_and_gets_its_modes_back(knowledge, classifier, targets):
    before = {name: tensor.clone() for name, tensor in classifier.state_dict().items()}
    classifier.backbone.train()
    try:
        invert_layerwise(knowledge, targets, torch.Generator().manual_seed(0), SHORT)
        assert all(module.training for module in classifier.backbone.modules())
        assert not classifier.head.training
    finally:
        classifier.eval()
    assert all(torch.equal(tensor, before[name]) for name, tensor in classifier.state_dict().items())
    assert all(parameter.requires_grad and parameter.grad is None for parameter in classifier.parameters())
