"""What is chosen by the data, and what a person chose."""

from types import SimpleNamespace

import pytest
import torch

from remix.deploy.recipe import LearnSettings, frozen_blocks, make_recipe
from remix.learning import Stage, Training, Work
from remix.methods import create_method
from remix.methods.pmi import _bounded
from remix.networks import Classifier, LinearHead, create_backbone
from remix.statistics import ClassGaussians

PHOTOS = {"trained": True, "frozen": 8, "channels": 3, "size": 128, "images": 150}


def test_small_data_and_weights_freeze_all_but_the_last_block():
    backbone = create_backbone("resnet18", width=2, input_shape=(3, 32, 32))
    assert frozen_blocks(None, backbone, trained=True, images=150) == 8
    assert frozen_blocks(None, backbone, trained=False, images=150) == 0
    assert frozen_blocks(None, backbone, trained=True, images=50_000) == 0


@pytest.mark.parametrize(
    ("wanted", "frozen"), [("none", 0), (0, 0), (3, 3), ("3", 3), ("last-stage", 7), ("layer2.0", 3), ("stem", 0)]
)
def test_what_is_frozen_can_be_chosen(wanted, frozen):
    backbone = create_backbone("resnet18", width=2, input_shape=(3, 64, 64))
    assert frozen_blocks(wanted, backbone, trained=True, images=10) == frozen


def test_a_trained_network_learns_slowly_and_keeps_its_batchnorm():
    tuned = make_recipe("remix", LearnSettings(), **PHOTOS)
    fresh = make_recipe("remix", LearnSettings(), **{**PHOTOS, "trained": False, "frozen": 0})
    assert tuned.method.first.lr < fresh.method.first.lr
    assert tuned.method.first.epochs < fresh.method.first.epochs
    assert (tuned.adapt_batchnorm, fresh.adapt_batchnorm) == (False, True)


def test_everything_can_be_overridden():
    settings = LearnSettings(epochs=3, lr=0.5, samples=7, batch=11, versions=2, flip=False)
    found = make_recipe("remix", settings, **PHOTOS, old_classes=4)
    assert (found.method.first.epochs, found.method.first.lr, found.method.network.epochs) == (3, 0.5, 3)
    assert found.method.samples == 28
    assert (found.batch, found.versions, found.augment.flip) == (11, 2, False)


def test_grey_images_are_not_mirrored():
    assert not make_recipe("remix", LearnSettings(), **{**PHOTOS, "channels": 1}).augment.flip


def test_priors_follow_method_and_statistics():
    def prior(method, laplace):
        recipe = make_recipe(method, LearnSettings(), **PHOTOS, old_classes=2, covariances=laplace)
        return recipe.method.name, recipe.method.inversion.prior.kind

    assert prior("remix", True) == ("remix", "laplace")
    assert prior("remix", False) == ("remix", "diagonal")
    assert prior("pmi", True) == ("pmi", "none")


def test_targets_of_few_images_are_drawn_wider():
    mean, std = torch.randn(2, 4), torch.rand(2, 4) + 0.5
    engine = SimpleNamespace(
        old_classes=2,
        memory=SimpleNamespace(gaussians=ClassGaussians((0, 1), (9, 9), mean, std), selectors=None),
        generator=torch.Generator().manual_seed(0),
        tasks=1,
    )
    targets = create_method("pmi", samples=4000, samples_per_task=0, spread=2.0, selection=False).targets(engine)
    for label in (0, 1):
        found = targets.features[targets.labels == label]
        torch.testing.assert_close(found.std(0), 2 * std[label], rtol=0.1, atol=0)
        torch.testing.assert_close(found.mean(0), mean[label], rtol=0, atol=0.3)


@pytest.mark.parametrize(("length", "slower"), [(1.0, False), (50.0, True)])
def test_classifiers_learn_slower_where_features_are_long(length, slower):
    """A rate of 0.04 with features of squared length 2,500 moves a logit by 100 in a step."""
    mean = torch.zeros(2, 4)
    mean[:, 0] = length
    student = Classifier(create_backbone("convnet8", width=1), LinearHead(4, [2, 2]))
    memory = SimpleNamespace(gaussians=ClassGaussians((0, 1), (9, 9), mean, torch.zeros(2, 4)))
    engine = SimpleNamespace(student=student, memory=memory)
    stage = Stage("newest", Training(8, 0.04), lambda _: Work([student.head.newest()], dict))
    ((module, factor),) = _bounded(stage).start(engine).factors
    assert module is student.head
    assert stage.training.lr * factor * length**2 <= 4 + 1e-6
    assert (factor < 1) == slower
    memory.gaussians = None
    assert _bounded(stage).start(engine).factors == ()


def test_what_a_step_trains_is_bounded_and_what_a_run_trains_is_not():
    for bounded in (True, False):
        stages = create_method("pmi", bounded=bounded).stages("later")
        assert [stage.start.__qualname__.startswith("_bounded") for stage in stages] == [bounded] * 4
