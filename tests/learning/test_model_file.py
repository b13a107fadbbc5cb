"""One file for a classifier and what is remembered of its data: it comes back as it was, and nothing else comes in."""

from __future__ import annotations

import json
import random
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from remix.data import Preprocessing, load
from remix.learning import LearnStep, Model, load_model, save_model
from remix.learning.model_file import KIND, VERSION
from remix.networks import Classifier, LinearHead, create_backbone
from remix.statistics import (
    DamagedFileError,
    Memory,
    batchnorm_points,
    measure_classes,
    measure_layers,
    read_file,
    write_file,
)

OPTIONS = {"width": 3}
FILES = Path(__file__).with_name("files")


@pytest.fixture(scope="module")
def model() -> Model:
    """Two tasks, random weights, statistics of noise."""
    generator = torch.Generator().manual_seed(0)
    backbone = create_backbone("convnet8", **OPTIONS, generator=generator)
    head = LinearHead(backbone.feature_dim, [2, 1], bias=True, generator=generator)
    images = torch.randn(60, 1, 8, 8, generator=generator)
    labels = torch.arange(60) % 3
    backbone(images)
    memory = Memory()
    memory.layers = measure_layers(backbone, [images], batchnorm_points(backbone), kinds=("laplace", "dense"))
    memory.gaussians = measure_classes(backbone, [(images, labels)])
    memory.record_task([("cat", 20), ("dog", 20)])
    memory.record_task([("Bär", 20)])
    preprocessing = Preprocessing(8, 1, (0.3,), (0.4,))
    return Model(
        Classifier(backbone, head), "convnet8", OPTIONS, ("cat", "dog", "Bär"), preprocessing, memory, {"by": "a test"}
    )


@pytest.fixture
def saved(model, tmp_path):
    save_model(tmp_path / "model.remix", model)
    return tmp_path / "model.remix"


@pytest.fixture
def change(saved):
    """Writes the file anew, with sound checksums, after its content or tensors were changed."""

    def write(edit):
        tensors, content = read_file(saved, KIND, VERSION)
        edit(tensors, content)
        write_file(saved, KIND, VERSION, tensors, content)
        return saved

    return write


def test_everything_comes_back(model, saved):
    found = load_model(saved)
    images = torch.randn(5, 1, 8, 8)
    expected = model.classifier.eval()(images)
    assert not found.classifier.training
    assert torch.equal(found.classifier(images), expected)
    for name, tensor in model.classifier.state_dict().items():
        assert torch.equal(found.classifier.state_dict()[name], tensor)
    assert found.classifier.head.task_sizes == (2, 1)
    assert found.classifier.head.bias
    assert (found.backbone, found.options, found.classes) == ("convnet8", OPTIONS, ("cat", "dog", "Bär"))
    assert found.preprocessing == model.preprocessing
    assert found.provenance == {"by": "a test"}
    assert found.memory is not None
    assert list(found.memory.layers) == list(model.memory.layers)
    key = next(iter(model.memory.layers))
    assert torch.equal(found.memory.layers[key].covariance, model.memory.layers[key].covariance)
    assert torch.equal(found.memory.gaussians.mean, model.memory.gaussians.mean)
    assert found.memory.tasks == model.memory.tasks


def test_a_model_without_statistics(model, tmp_path):
    save_model(tmp_path / "bare.remix", replace(model, memory=None))
    assert load_model(tmp_path / "bare.remix").memory is None


def test_weights_are_kept_in_single_precision(model, tmp_path):
    half = Classifier(create_backbone("convnet8", width=3), LinearHead(12, [2])).half()
    bare = Model(half, "convnet8", OPTIONS, ("a", "b"), model.preprocessing)
    save_model(tmp_path / "model.remix", bare)
    found = load_model(tmp_path / "model.remix").classifier
    assert {tensor.dtype for tensor in found.parameters()} == {torch.float32}
    assert torch.equal(found.head.classifier(0).weight, half.head.classifier(0).weight.float())


def test_options_that_are_tuples_come_back_as_tuples(tmp_path):
    backbone = create_backbone("resnet20", width=2, input_shape=(3, 16, 16))
    made = Model(
        Classifier(backbone, LinearHead(8, [1])),
        "resnet20",
        {"width": 2, "input_shape": (3, 16, 16)},
        ("a",),
        Preprocessing(16, 3, (0.5,) * 3, (0.2,) * 3),
    )
    save_model(tmp_path / "model.remix", made)
    assert load_model(tmp_path / "model.remix").options["input_shape"] == (3, 16, 16)


def test_a_write_that_fails_leaves_the_old_file(model, saved, monkeypatch):
    import os

    before = saved.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save_model(saved, model)
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]


def test_unknown_class_names_the_closest(model):
    assert model.labels(["dog", "Bär"]) == [1, 2]
    with pytest.raises(ValueError, match=r"no class 'dgo' \(did you mean 'dog'\?\); the model knows: cat, dog, Bär"):
        model.labels(["dgo"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": ("cat", "dog")}, "the head has 3 outputs, but there are 2 class names"),
        ({"classes": ("cat", "dog", "cat")}, "'cat' is there twice"),
        ({"classes": ("cat", "dog", "owl")}, "the memory is of other classes"),
        ({"classes": ("cat", "dog", "../../etc/passwd")}, "control characters or slashes"),
        ({"classes": ("cat", "dog", "a\x1b[2Jb")}, "control characters or slashes"),
        ({"classes": ("cat", "dog", "..")}, "is not a name for a class"),
        ({"classes": ("cat", "dog", "x" * 300)}, "has 300 characters"),
        ({"preprocessing": Preprocessing(9, 1, (0.3,), (0.4,))}, r"the preprocessing makes \(1, 9, 9\)"),
    ],
)
def test_parts_that_do_not_fit(model, changes, message):
    with pytest.raises(ValueError, match=message):
        replace(model, **changes)


def test_statistics_of_another_network(model):
    wider = Classifier(create_backbone("convnet8", width=4), LinearHead(16, [2, 1]))
    with pytest.raises(ValueError, match="another network"):
        replace(model, classifier=wider)


def test_only_what_can_be_built_again_is_saved(model, tmp_path):
    with pytest.raises(ValueError, match="register it"):
        save_model(tmp_path / "model.remix", replace(model, backbone="mine"))
    with pytest.raises(ValueError, match="option 'width' of a backbone must be plain"):
        save_model(tmp_path / "model.remix", replace(model, options={"width": torch.tensor(3)}))
    assert not list(tmp_path.iterdir())


def edit_content(path, value):
    def edit(_, content):
        *parents, last = path
        for key in parents:
            content = content[key]
        if value is None:
            del content[last]
        else:
            content[last] = value

    return edit


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["backbone", "name"], "mine", "'mine' is not known here; if it is one of your own, import"),
        (["backbone", "name"], ["convnet8"], "is not known here"),
        (["backbone", "options"], {"width": 4}, r"the weights 'backbone\..*' are F32 \(3, 1, 3, 3\), expected F32 \(4"),
        (["backbone", "options"], {"width": 10**7}, "expected"),
        (["backbone", "options"], {"width": -1}, "width must be at least 1"),
        (["backbone", "options"], {"depth": 3}, "has no option 'depth'"),
        (["backbone", "options"], [], "not a valid model"),
        (["backbone"], None, "'backbone' is missing"),
        (["head", "tasks"], [3], "expected"),
        (["head", "tasks"], [2, 1, 10**12], "are missing"),
        (["head", "tasks"], [], "its head is described as"),
        (["head", "bias"], False, "does not have"),
        (["classes"], ["cat", "dog"], "3 outputs"),
        (["classes"], ["cat", "dog", 7], "7 is not a name"),
        (["classes"], None, "'classes' is missing"),
        (["preprocessing", "size"], 4000, "its images would be of"),
        (["preprocessing", "mean"], [float("nan")], "mean and std need"),
        (["preprocessing", "std"], [0.0], "std positive"),
        (["preprocessing", "std"], [1e-300], "std positive and none beyond"),
        (["preprocessing"], 5, "preprocessing needs"),
        (["memory"], None, "statistics that its header does not describe"),
        (["memory", "layers"], [], "which no memory holds"),
        (["provenance"], "me", "not a valid model"),
        (["classes"], "abc", "its classes are described as abc"),
        (["classes"], ["cat", "dog", "../../etc"], "control characters or slashes"),
        (["classes"], ["cat", "dog", "a\x1b[2J"], "control characters or slashes"),
        (["classes"], ["cat", "dog", "dog"], "'dog' is there twice"),
        (["history"], "abc", "its history are described as abc"),
        (["history"], [{"classes": ["cat"]}], "a step of its history is described as"),
        (["frozen"], 10**18, "cannot be frozen"),
        (["remix"], 1, "written by remix 1"),
        (["memory", "classes", 0, 1], 10**18, "must have at least one image"),
        (["memory", "tasks", 1, 0], [1], "do not tell of each of its classes once"),
        (["memory", "tasks", 0, 1], 10**18, "must have at least one image"),
        (["memory", "gaussians", "counts", 0], 10**18, "positive numbers of images"),
        (["memory", "layers", 0, "images"], 10**18, "must be a number of images"),
    ],
)
def test_a_header_that_was_made_up_is_refused_in_a_sentence(change, path, value, message):
    with pytest.raises(DamagedFileError, match=message) as refused:
        load_model(change(edit_content(path, value)))
    assert "\n" not in str(refused.value)


def test_weights_that_are_not_numbers(change):
    def edit(tensors, _):
        tensors["network/backbone.convolutions.0.conv.weight"][0, 0, 0, 0] = torch.nan

    with pytest.raises(DamagedFileError, match=r"backbone.convolutions.0.conv.weight' hold NaN"):
        load_model(change(edit))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("backbone.convolutions.0.bn.running_var", -1.0, "the running variance .* is negative"),
        ("backbone.convolutions.1.conv.weight", 3e38, "infinite numbers, the output of block '.*1' already"),
        ("head.classifiers.0.weight", 3e38, "the network gives NaN or infinite numbers"),
    ],
)
@pytest.mark.parametrize("statistics", [True, False])
def test_a_network_that_cannot_compute_is_refused(change, name, value, message, statistics):
    def edit(tensors, content):
        tensors[f"network/{name}"].fill_(value)
        if not statistics:
            del content["memory"]
            for key in [key for key in tensors if key.startswith("memory/")]:
                del tensors[key]

    with pytest.raises(DamagedFileError, match=message):
        load_model(change(edit))


@pytest.mark.slow
def test_a_model_of_thousands_of_tasks_opens_in_seconds(model, tmp_path):
    count = 12_000
    head = LinearHead(model.classifier.head.feature_dim, [1] * count)
    names = tuple(f"class {i}" for i in range(count))
    many = Model(Classifier(model.classifier.backbone, head), "convnet8", OPTIONS, names, model.preprocessing)
    save_model(tmp_path / "many.remix", many)
    began = time.process_time()
    found = load_model(tmp_path / "many.remix")
    assert time.process_time() - began < 10  # it was 25 while every task looked at all the others
    assert torch.equal(found.classifier.head.classifier(-1).weight, head.classifier(-1).weight)


def test_a_matrix_that_is_no_covariance_is_refused(change):
    def edit(tensors, _):
        name = next(name for name in tensors if name.endswith("/covariance"))
        tensors[name].neg_()

    with pytest.raises(DamagedFileError, match="must be symmetric, its diagonal positive"):
        load_model(change(edit))


def test_statistics_are_read_in_the_precision_of_the_weights(change):
    def edit(tensors, _):
        name = next(name for name in tensors if name.endswith("/loc"))
        tensors[name] = tensors[name].half()

    found = load_model(change(edit))
    assert {layer.normal.loc.dtype for layer in found.memory.layers.values()} == {torch.float32}


def test_no_memory_is_not_taken_for_damage(saved, monkeypatch):
    def full(*_, **__):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")

    monkeypatch.setattr("remix.learning.model_file.create_backbone", full)
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        load_model(saved)


def test_weights_in_another_precision_are_refused(change):
    def edit(tensors, _):
        tensors["network/head.classifiers.0.bias"] = torch.zeros(2, dtype=torch.complex64)

    with pytest.raises(DamagedFileError, match=r"head.classifiers.0.bias' are C64 \(2,\), expected F32"):
        load_model(change(edit))


def test_the_history_and_the_frozen_blocks_come_back(model, tmp_path):
    first = LearnStep(("cat", "dog"), (20, 20), "measure", date="2026-11-16T03:00:00+00:00")
    second = LearnStep(("Bär", "cat"), (20, 7), "remix", {"new classes, held out": 97.5}, ("cat",), "bears")
    save_model(tmp_path / "model.remix", replace(model, history=(first, second), frozen=3))
    found = load_model(tmp_path / "model.remix")
    assert found.history == (first, second)
    assert found.frozen == 3


def test_a_history_or_frozen_blocks_that_are_impossible(model):
    step = LearnStep(("cat",), (3,), "remix")
    with pytest.raises(ValueError, match="'cat' twice"):
        replace(model, history=(step, step))
    with pytest.raises(ValueError, match="class 'cow' that it does not have"):
        replace(model, history=(LearnStep(("cow",), (3,), "remix"),))
    with pytest.raises(ValueError, match="at most 1000 steps"):
        replace(model, history=(replace(step, extended=("cat",)),) * 1001)
    for frozen in (-1, 6, 1.0, "all"):
        with pytest.raises(ValueError, match="5 blocks"):
            replace(model, frozen=frozen)
    with pytest.raises(ValueError, match="a provenance holds at most"):
        replace(model, provenance={"by": "x" * 2001})


def test_control_characters_of_the_provenance_are_escaped(model, tmp_path):
    save_model(tmp_path / "model.remix", replace(model, provenance={"by": "\x1b[2Jme\nyou"}))
    assert load_model(tmp_path / "model.remix").provenance == {"by": "\\x1b[2Jme\\nyou"}


@pytest.mark.parametrize("version", [1, 2])
def test_files_of_earlier_versions_are_read(version):
    """They were written by the package as it was then; docs/artefact.md promises that they stay readable."""
    found = load_model(FILES / f"model-v{version}.remix")
    splits = load("digits")
    test = splits.test.relabelled([0, 1, 2, 3])
    right = found.classifier(splits.normalisation.normalise(test.images)).argmax(1) == test.labels
    assert right.float().mean() > 0.95
    assert found.classes == ("zero", "one", "two", "drei ³")
    assert found.memory is not None
    assert [task.labels for task in found.memory.tasks] == [(0, 1), (2, 3)]
    assert found.frozen == (0 if version == 1 else 2)
    assert [step.classes for step in found.history] == ([] if version == 1 else [("zero", "one"), ("two", "drei ³")])


def test_a_tensor_that_has_no_place(change):
    with pytest.raises(DamagedFileError, match="'photos', which no model holds"):
        load_model(change(lambda tensors, _: tensors.update(photos=torch.zeros(4, 3, 8, 8))))


def test_missing_truncated_foreign_and_of_another_version(model, saved, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file .*nothing\.remix"):
        load_model(tmp_path / "nothing.remix")
    whole = saved.read_bytes()
    for content in (b"", b"PK\x03\x04 a zip", whole[:20], whole[: len(whole) // 2], whole[:-1], whole + b"x"):
        saved.write_bytes(content)
        with pytest.raises(DamagedFileError):
            load_model(saved)
    model.memory.save(saved)
    with pytest.raises(DamagedFileError, match="holds 'memory', expected 'model'"):
        load_model(saved)
    write_file(saved, KIND, VERSION + 1, {}, {})
    with pytest.raises(
        DamagedFileError, match="format version 3 of 'model', this remix reads versions 1 to 2; a newer"
    ):
        load_model(saved)


def test_a_header_that_claims_terabytes(saved):
    header = json.dumps({"w": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}}).encode()
    saved.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(DamagedFileError):
        load_model(saved)


def test_any_changed_byte_is_noticed(saved):
    whole = saved.read_bytes()
    random.seed(0)
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(random.choice((1, 1, 4))):
            place = random.randrange(len(data)) if random.random() < 0.5 else random.randrange(3000)
            data[place] = (data[place] + random.randrange(1, 256)) % 256
        saved.write_bytes(data)
        with pytest.raises(DamagedFileError):
            load_model(saved)
