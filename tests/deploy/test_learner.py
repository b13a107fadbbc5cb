"""`remix.Learner`: what the five lines of a Python service rely on."""

import copy
import subprocess
import sys
import threading

import pytest
import torch
from torch import nn

import remix
from remix.data import DataError
from remix.learning import Monitor, TensorReplay
from remix.networks import create_backbone
from tests.deploy.small import NAMES, QUICK, digits, folder, learner, weights_of


@pytest.fixture(scope="module")
def two_steps():
    found = learner()
    found.learn(digits([0, 1, 2]), "first", classes=NAMES)
    found.learn(digits([3, 4]), classes=NAMES)
    return found


def test_importing_the_package_does_not_import_torch():
    code = "import remix, sys; assert 'torch' not in sys.modules; print(dir(remix))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "'Learner'" in shown
    assert "'load'" in shown


def test_classes_and_history_grow(two_steps):
    assert two_steps.classes == tuple(NAMES[:5])
    assert [step.classes for step in two_steps.history] == [tuple(NAMES[:3]), tuple(NAMES[3:5])]
    assert [step.name for step in two_steps.history] == ["first", ""]
    assert two_steps.history[0].images == (8, 8, 8)
    assert set(two_steps.history[0].accuracies) == {"held-out images"}
    assert set(two_steps.history[1].accuracies) == {"new classes, held-out images"}


def test_predictions_have_labels_names_and_probabilities(two_steps):
    images, _ = digits([0, 4], each=3)
    found = two_steps.predict(images, top=2)
    assert found.labels.shape == found.probabilities.shape == (6, 2)
    assert found.names[0][0] == two_steps.classes[int(found.labels[0, 0])]


def test_saved_and_loaded_it_predicts_the_same_and_goes_on(two_steps, tmp_path):
    two_steps.save(tmp_path / "model.remix")
    again = remix.load(tmp_path / "model.remix", **QUICK)
    images, _ = digits(range(5), each=2)
    torch.testing.assert_close(again.predict(images).probabilities, two_steps.predict(images).probabilities)
    assert again.history == two_steps.history
    again.learn(digits([5]), classes=NAMES)
    assert again.classes == tuple(NAMES[:6])


def test_evaluate_takes_any_data(two_steps, tmp_path):
    tensors = two_steps.evaluate(digits(range(6)), NAMES)
    files = two_steps.evaluate(folder(tmp_path, range(6)))
    assert tensors.counts == files.counts
    assert tensors.images == 50
    assert tensors.unknown == {"digit 5": 10}


def test_evaluating_only_unknown_classes_is_refused(two_steps):
    with pytest.raises(DataError, match="knows none of the classes"):
        two_steps.evaluate(digits([7]), NAMES)


def test_dreams_are_images_of_the_classes_asked_for(two_steps):
    found = two_steps.dream([NAMES[1], NAMES[4]], 3, steps=4)
    assert found.images.shape == (6, 1, 8, 8)
    assert sorted(found.labels.tolist()) == [1, 1, 1, 4, 4, 4]
    with pytest.raises(ValueError, match="there is no class 'cat'"):
        two_steps.dream(["cat"])
    with pytest.raises(ValueError, match="there is no class 99"):
        two_steps.dream([99])
    by_place = two_steps.dream([1], 3, steps=4)
    assert by_place.classes == found.classes
    assert torch.equal(by_place.images, two_steps.dream([NAMES[1]], 3, steps=4).images)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_model():
    one, two, other = (learner(seed=seed) for seed in (3, 3, 4))
    for found in (one, two, other):
        found.learn(digits([0, 1]))
        found.learn(digits([2]))
    assert all(torch.equal(a, weights_of(two.model)[key]) for key, a in weights_of(one.model).items())
    assert not all(torch.equal(a, weights_of(other.model)[key]) for key, a in weights_of(one.model).items())


def test_a_known_class_is_an_error_that_says_what_to_do_and_changes_nothing(two_steps):
    before = weights_of(two_steps.model)
    with pytest.raises(DataError, match=r"knows digit 3 already: extend \(--extend\) adds"):
        two_steps.learn(digits([3, 7]), classes=NAMES)
    assert all(torch.equal(value, before[key]) for key, value in weights_of(two_steps.model).items())
    assert len(two_steps.history) == 2


def test_extend_adds_images_to_a_class_and_may_bring_new_ones(two_steps):
    found = remix.Learner.of(two_steps.model, **QUICK)
    step = found.learn(digits([3, 6]), classes=NAMES, extend=True)
    assert step.extended == ("digit 3",)
    assert found.classes == (*NAMES[:5], "digit 6")
    assert [record.images for record in found.model.memory.classes] == [8, 8, 8, 16, 8, 8]
    assert found.model.memory.gaussians.labels == tuple(range(6))
    only_old = found.learn(digits([0]), classes=NAMES, extend=True)
    assert only_old.extended == only_old.classes == ("digit 0",)
    assert len(found.classes) == 6
    found.learn(digits([8]), classes=NAMES)  # and it goes on
    assert len(found.classes) == 7


def test_nothing_of_the_old_images_is_used(two_steps):
    """The second step sees its own images and dreams, and the model holds no tensor as large as an image."""
    assert two_steps.model.memory is not None
    tensors, _ = two_steps.model.memory.to_tensors()
    assert all(tensor.dim() <= 2 for tensor in tensors.values())


@pytest.mark.parametrize("step", ["dream", "first epoch", "measure"])
def test_interrupted_at_any_phase_it_stays_as_it_was(two_steps, monkeypatch, step):
    found = remix.Learner.of(two_steps.model, **QUICK)
    before = weights_of(found.model)

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    place = {
        "dream": "remix.learning.trainer.Monitor.inversion",
        "first epoch": "remix.learning.trainer.Monitor.batch",
        "measure": "remix.methods.pmi.Pmi.remember",
    }[step]
    monkeypatch.setattr(place, interrupted)
    with pytest.raises(KeyboardInterrupt):
        found.learn(digits([7]), classes=NAMES)
    assert found.classes == tuple(NAMES[:5])
    assert all(torch.equal(value, before[key]) for key, value in weights_of(found.model).items())


def test_frozen_blocks_stay_frozen_in_every_step_and_in_the_file(tmp_path):
    found = learner(freeze=3)
    found.learn(digits([0, 1, 2]))
    first = weights_of(found.model)
    found.save(tmp_path / "model.remix")
    found = remix.load(tmp_path / "model.remix", **QUICK)
    assert found.model.frozen == 3
    found.learn(digits([3, 4]))
    for key, value in weights_of(found.model).items():
        if key.startswith(("backbone.convolutions.0", "backbone.convolutions.1", "backbone.convolutions.2")):
            assert torch.equal(value, first[key]), key
    moved = "backbone.convolutions.4.conv.weight"
    assert not torch.equal(weights_of(found.model)[moved], first[moved])


def test_a_frozen_network_dreams_images_all_the_same():
    found = learner(freeze=3)
    found.learn(digits([0, 1]))
    assert found.dream(n=2, steps=3).images.shape == (4, 1, 8, 8)


def test_replay_above_frozen_blocks_is_made_of_maps(monkeypatch):
    shapes = []
    made = TensorReplay.of.__func__

    def spy(cls, items, *rest, **options):
        shapes.append((items.start, tuple(items.x.shape[1:])))
        return made(cls, items, *rest, **options)

    monkeypatch.setattr(TensorReplay, "of", classmethod(spy))
    for freeze in (0, 3):
        found = learner(freeze=freeze)
        found.learn(digits([0, 1]))
        found.learn(digits([2]))
    assert shapes == [(0, (1, 8, 8)), (3, (8, 4, 4))]


def test_finetune_can_be_compared_with():
    found = learner(method="finetune")
    found.learn(digits([0, 1]))
    step = found.learn(digits([2]))
    assert set(step.accuracies) == {"new classes, held-out images"}
    found.use_method("remix")
    with pytest.raises(ValueError, match="keeps no statistics of class 0"):
        found.learn(digits([3]))


def test_a_module_that_is_a_backbone_learns_but_needs_a_name_to_be_saved(tmp_path):
    found = learner(backbone=create_backbone("convnet8", width=4), options=None)
    found.learn(digits([0, 1]))
    with pytest.raises(ValueError, match="register"):
        found.save(tmp_path / "model.remix")


def test_weights_begin_with_a_frozen_lower_part(tmp_path):
    from safetensors.torch import save_file

    backbone = create_backbone("convnet8", width=4)
    save_file(backbone.state_dict(), tmp_path / "w.safetensors")
    found = learner(weights=tmp_path / "w.safetensors")
    found.learn(digits([0, 1]))
    assert found.model.frozen == 4  # all but the last block
    assert found.model.provenance["weights"] == "w.safetensors"


@pytest.mark.parametrize(
    ("arguments", "kind", "sentence"),
    [
        ({"backbone": "resnet33"}, ValueError, "no backbone is called 'resnet33'"),
        ({"method": "magic"}, ValueError, "cannot be used here; there are: finetune, lwf, pmi, remix"),
        ({"method": "joint"}, ValueError, "learn all classes in one step"),
        ({"speed": 3}, ValueError, "no setting 'speed'; there are: freeze, epochs"),
        ({"epochs": 0}, ValueError, "epochs must be at least 1"),
        ({"lr": -1.0}, ValueError, "lr must be above 0"),
        ({"holdout": 1.0}, ValueError, "holdout must be within 0"),
        ({"size": 16}, ValueError, "size of images for 'convnet8' is fixed"),
        ({"backbone": nn.Linear(3, 3), "options": None}, TypeError, "not a backbone yet"),
        ({"weights": "/no/file.safetensors"}, FileNotFoundError, "no weights file"),
    ],
)
def test_what_does_not_exist_is_named(arguments, kind, sentence):
    with pytest.raises(kind, match=sentence):
        learner(**arguments)


@pytest.mark.parametrize("freeze", ["layer9", 5, -1])
def test_a_block_that_does_not_exist_cannot_be_frozen(freeze):
    with pytest.raises(ValueError, match="block"):
        learner(freeze=freeze).learn(digits([0, 1]))


def test_before_the_first_step_there_is_nothing_to_use():
    found = learner()
    assert found.classes == found.history == ()
    with pytest.raises(RuntimeError, match="call learn"):
        found.predict(digits([0])[0])
    with pytest.raises(DataError, match="only one class"):
        found.learn(digits([0]))


def test_one_image_per_class_is_enough_to_go_on():
    found = learner()
    found.learn(digits([0, 1], each=1))
    assert "nothing is held out" in found.notes[-1]
    found.learn(digits([2], each=1))
    assert len(found.classes) == 3


def test_plain_labels_are_places_among_the_classes_or_what_these_are_called(two_steps):
    images, labels = digits([1, 3])
    by_name = two_steps.evaluate((images, labels), classes=NAMES)
    assert two_steps.evaluate((images, labels)).counts == by_name.counts  # digit 3 is class number 3
    with pytest.raises(DataError, match=r"label 5, and the model has 5 classes, 0 to 4: say with classes="):
        two_steps.evaluate(digits([1, 5]))
    numbered = learner()
    numbered.learn(digits([7, 4]))
    found = numbered.evaluate(digits([4, 7, 9]))
    assert numbered.classes == ("class 4", "class 7")
    assert [found.of_class(label)[0] for label in found.tested] == [10, 10]
    assert found.unknown == {"class 9": 10}


@pytest.mark.parametrize("ending", [".pt2", ".safetensors"])
def test_it_exports_by_the_ending_of_the_file(two_steps, tmp_path, ending):
    done = two_steps.export(tmp_path / f"model{ending}")
    assert done.files[0].is_file()
    assert done.difference < 1e-3
    with pytest.raises(ValueError, match=r"must end in one of .onnx, .pt2, .safetensors"):
        two_steps.export(tmp_path / "model.pth")


def test_a_copy_learns_by_itself(two_steps):
    made = copy.deepcopy(two_steps)
    made.monitor = Unshared()
    twin, before = copy.deepcopy(made), weights_of(made.model)
    assert twin.monitor is made.monitor
    twin.learn(digits([5]), classes=NAMES)
    assert len(twin.classes) == len(made.classes) + 1
    assert all(torch.equal(value, before[key]) for key, value in weights_of(made.model).items())


class Unshared(Monitor):
    """Holds what cannot be copied, as a terminal does."""

    def __init__(self):
        self.lock = threading.Lock()


def test_printed_it_says_what_it_knows_in_a_few_lines(two_steps):
    assert repr(learner()) == "Learner of convnet8, method auto, nothing learned yet"
    lines = repr(two_steps).splitlines()
    assert lines[1] == "Model of 5 classes: digit 0, digit 1, digit 2, digit 3, digit 4"
    assert lines[-1].startswith("  step 2: ")
    assert len(lines) == 5
    assert max(map(len, lines)) < 120
    for shown in (two_steps.history[0], two_steps.predict(digits([0])[0]), two_steps.dream(n=1, steps=1)):
        assert "tensor(" not in repr(shown)


def test_progress_is_shown_where_it_is_asked_for(capsys):
    made = learner(progress=True)
    made.learn(digits([0, 1]), classes=NAMES)
    made.learn(digits([2]), classes=NAMES)
    made.dream(["digit 2"], n=1, steps=2)
    shown = capsys.readouterr().out
    assert "learning, " in shown
    assert "dreaming of the old classes" in shown
    assert "dreaming, " in shown
    learner().learn(digits([0, 1]), classes=NAMES)
    assert not capsys.readouterr().out
