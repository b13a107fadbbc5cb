"""Adaptation to the first classes: what it changes, that it can be undone, and that its estimate is honest."""

from __future__ import annotations

import copy
from unittest import mock

import pytest
import torch
from test_exact import engine_of, learn, network, photographs
from tiny_transformer import TinyTransformer

from remix.data import ImageDataset
from remix.methods import create_method
from remix.methods import first_adaptation as adapting
from remix.methods.exact import LEFT_OUT
from remix.methods.first_adaptation import FirstAdaptation, Trial, first_adapted
from remix.methods.step_features import block_sizes, step_features
from remix.networks import Pooling, create_backbone

NAMES = tuple("abcdef")


@pytest.fixture
def adaptation():
    engine = engine_of(create_method("auto", adapt=True))
    images, labels = photographs(10, 6)
    data = ImageDataset(images, labels, NAMES)
    engine.student.head.grow(NAMES)
    sizes = block_sizes(engine.backbone)
    blocks = range(len(sizes) - 4, len(sizes))
    return FirstAdaptation(
        engine, data, step_features(engine, data, Pooling(tuple(blocks)), [sizes[block] for block in blocks])
    )


def state(adaptation):
    return copy.deepcopy(adaptation.engine.backbone.state_dict())


def same(one, other):
    return [key for key in one if not torch.equal(one[key], other[key])]


def test_it_changes_weights_of_the_last_blocks_alone_and_no_batchnorm_statistics(adaptation):
    before = state(adaptation)
    assert adaptation.adapt(torch.arange(6), "adapting")
    changed = same(before, state(adaptation))
    upper = [block.name for block in adaptation.engine.backbone.blocks()[adaptation.start :]]
    assert changed
    assert all(any(key.startswith(name) for name in upper) for key in changed)
    assert not [key for key in changed if "running" in key or "num_batches" in key]


def test_undone_and_after_a_trial_the_network_is_as_it_was(adaptation):
    before = state(adaptation)
    adaptation.adapt(torch.arange(6), "adapting")
    adaptation.undo()
    assert not same(before, state(adaptation))
    labels = adaptation.frozen.labels
    assert adaptation.tried(lambda features: features.rows[:, :6].double(), labels) is not None
    assert not same(before, state(adaptation))


def test_a_loss_that_is_not_finite_leaves_the_network_as_it_was(adaptation):
    before = state(adaptation)
    with mock.patch.object(adapting, "cross_entropy", lambda x, _: x.sum() * float("nan")):
        assert not adaptation.adapt(torch.arange(6), "adapting")
    assert not same(before, state(adaptation))


def test_features_are_those_of_a_pass_of_the_images_through_the_network(adaptation):
    adaptation.adapt(torch.arange(6), "adapting")
    found = adaptation.features()
    slow = step_features(adaptation.engine, adaptation.data, Pooling(found.blocks), found.sizes)
    assert torch.allclose(found.rows, slow.rows, atol=1e-2 * float(slow.rows.abs().max()))
    assert not torch.allclose(found.rows, adaptation.frozen.rows, atol=1e-3)


def test_images_are_judged_by_networks_that_were_not_adapted_to_their_class(adaptation):
    labels, learned = adaptation.frozen.labels, []

    def adapt(classes, what):
        learned.append(classes.tolist())
        return True

    def scores(features):  # what the network was last adapted to, if anything
        known = learned[-1] if learned else []
        return torch.isin(labels, torch.tensor(known)).double()[:, None] + torch.zeros(len(labels), 6).double()

    with mock.patch.object(adaptation, "adapt", adapt):
        trial = adaptation.tried(scores, labels)
    assert [set(half) for half in learned] == [{0, 2, 4}, {1, 3, 5}]
    assert bool((trial.scores == 0).all())


def test_better_is_more_than_the_standard_error():
    generator, labels = torch.Generator().manual_seed(0), torch.arange(40) % 4
    before = torch.randn(40, 4, generator=generator).double()
    hint = torch.nn.functional.one_hot(labels, 4).double()
    assert Trial.of(before, before + 2 * hint, labels).better
    assert not Trial.of(before, before, labels).better
    assert not Trial.of(before + 2 * hint, before, labels).better


def test_the_last_stage_adapts_at_most_three_blocks_of_it():
    large = create_backbone("resnet34")
    assert large.blocks()[first_adapted(large)].name == "layer4.0"
    small = create_backbone("resnet32")
    assert first_adapted(small) == len(small.blocks()) - 3
    assert first_adapted(TinyTransformer()) >= 1


@pytest.mark.parametrize("better", [True, False])
def test_auto_adapts_once_if_the_trial_says_so_and_later_steps_come_in_any_order(better):
    images, labels = photographs(12, 6)
    found = []
    with mock.patch.object(Trial, "better", better):
        for steps in ([[0, 1, 2, 3], [4], [5]], [[0, 1, 2, 3], [5], [4]]):
            engine = engine_of(create_method("auto", adapt=True))
            for step in steps:
                learn(engine, images, labels, step)
                if step == steps[0]:
                    assert any("adapted the last" in note for note in engine.notes) == better
                    assert LEFT_OUT in engine.estimates
                    first = copy.deepcopy(engine.backbone.state_dict())
            assert not same(first, engine.backbone.state_dict())
            assert bool(same(first, network().state_dict())) == better
            found.append(engine)
    one, other = (dict(engine.student.head.state_dict()) for engine in found)
    weight = next(key for key, value in one.items() if value.dim() == 2 and value.shape[0] == 6 and "map" not in key)
    assert torch.allclose(one[weight], other[weight][[0, 1, 2, 3, 5, 4]], atol=1e-5)


def test_too_few_classes_to_tell_are_not_tried():
    engine = engine_of(create_method("auto", adapt=True))
    learn(engine, *photographs(30, 3), [0, 1, 2])
    assert not [note for note in engine.notes if "adapt" in note]
    assert not same(network().state_dict(), engine.backbone.state_dict())
