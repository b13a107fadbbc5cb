"""Every method through two tiny tasks: what changes, what is kept, what is forgotten."""

import gc
import inspect
import os
from dataclasses import replace
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import pytest
import torch
from tiny import DRIFTING, settings, tiny_engine, tiny_method, tiny_stream
from torch import Tensor

from remix.data import ImageDataset, Task, TaskStream
from remix.inversion import PriorSettings
from remix.learning.engine import Engine
from remix.learning.items import TensorReplay
from remix.learning.method import Method, Step
from remix.methods import create_method, list_methods, method
from remix.methods.registry import method_class
from remix.statistics import resolution_points

METHODS = list(list_methods())
STREAM = tiny_stream()


def task_for(engine: Engine, stream: TaskStream, index: int) -> Task:
    task = stream[index]
    if not engine.method.keeps_images:
        return task
    labels = range(task.labels.stop)
    whole = [stream[i].train for i in range(index + 1)]
    images = torch.cat([part.images for part in whole])  # type: ignore[arg-type]
    train = ImageDataset(images, torch.cat([part.labels for part in whole]), whole[0].classes)
    return replace(task, train=train, labels=labels, classes=tuple(train.classes[label] for label in labels))


def learned(name: str, tasks: int = 2, seed: int = 0) -> Engine:
    engine = tiny_engine(name, STREAM, seed)
    for index in range(tasks):
        engine.learn(task_for(engine, STREAM, index))
    return engine


def weights(engine: Engine) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in engine.student.state_dict().items()}


@pytest.mark.parametrize("name", [*METHODS, DRIFTING])
def test_two_tasks_are_learned_and_nothing_of_the_teacher_stays(name: str) -> None:
    engine = learned(name)
    assert engine.student.head.num_classes == 4
    assert [record.name for record in engine.memory.classes] == list(STREAM.classes)
    assert all(torch.isfinite(value).all() for value in weights(engine).values())
    _, counts = engine.evaluate_tasks([STREAM.test(0), STREAM.test(1)])
    assert counts == [20, 20]
    assert engine.teacher is None
    assert engine.replay is None


@pytest.mark.slow
@pytest.mark.parametrize("name", [*METHODS, DRIFTING])
def test_the_same_seed_gives_the_same_bits(name: str) -> None:
    first, again, other = learned(name), learned(name), learned(name, seed=1)
    a, b, c = weights(first), weights(again), weights(other)
    assert all(torch.equal(a[key], b[key]) for key in a)
    assert not all(torch.equal(a[key], c[key]) for key in a)


@pytest.mark.parametrize("name", [*(name for name in METHODS if not method_class(name).keeps_images), DRIFTING])
def test_no_image_of_an_old_task_is_reachable(name: str) -> None:
    """Walks everything that the engine refers to after its first task, and at every safe point of the second what the
    functions at work there refer to as well.
    """
    stream = tiny_stream()
    engine = tiny_engine(name, stream)
    task = stream[0]
    old = task.train.images
    assert isinstance(old, Tensor)
    normalised = stream.normalisation.normalise(old, torch.float32)
    kept = {image.numpy().tobytes() for image in (*old, *normalised)}
    engine.learn(task)
    del task, old, normalised
    tensors = reachable_tensors([engine])
    assert not any(tensor.dim() == 4 and tensor.shape[1:] == (1, 8, 8) for tensor in tensors)
    walks = []

    def walk() -> None:
        walks.append(0)
        for tensor in reachable_tensors([engine, *locals_at_work()]):
            if tensor.dim() == 4 and tensor.shape[1:] == (1, 8, 8):
                walks[-1] += 1
                assert not any(image.detach().numpy().tobytes() in kept for image in tensor)

    engine.learn(stream[1], walk)
    assert max(walks) > 0  # the new images are found, so the old ones would be
    assert len(walks) >= 3 + bool(engine.method.stages("later"))


def locals_at_work() -> list[Any]:
    """The local variables of all functions of the package that are under way."""
    found, frame = [], inspect.currentframe()
    while frame is not None:
        if f"{os.sep}remix{os.sep}" in frame.f_code.co_filename:
            found.append(dict(frame.f_locals))
        frame = frame.f_back
    return found


def reachable_tensors(start: list[Any]) -> list[Tensor]:
    """Every tensor that can be reached from objects through references and closures; not through modules and types."""
    seen: set[int] = set()
    queue, found = [*start], []
    while queue:
        item = queue.pop()
        if id(item) in seen or isinstance(item, type | ModuleType | BuiltinFunctionType):
            continue
        seen.add(id(item))
        if isinstance(item, Tensor):
            found.append(item)
        if isinstance(item, FunctionType):  # what it closes over, not the globals of its module
            queue += [item.__closure__, item.__defaults__, item.__kwdefaults__]
        else:
            queue += gc.get_referents(item)
    return found


def test_remix_remembers_covariances_gaussians_and_selectors() -> None:
    memory = learned("remix").memory
    assert memory.gaussians is not None
    assert memory.gaussians.labels == (0, 1, 2, 3)
    assert memory.selectors is not None
    assert len(memory.selectors) == 4
    fitted = [layer for layer in memory.layers.values() if layer.normal is not None]
    assert len(fitted) == 5
    assert len(memory.layers) == 5 + 4  # and the inputs of every block but the first


def test_remix_with_whole_maps_remembers_them_in_the_dct_basis_and_dreams_with_them() -> None:
    engine = tiny_engine("remix", STREAM)
    prior = PriorSettings("laplace-dct", "typical", 2.0)
    engine.method = replace(engine.method, view="map", inversion=replace(engine.method.inversion, prior=prior))  # type: ignore[call-arg, attr-defined]
    engine.learn(STREAM[0])
    engine.learn(STREAM[1])
    fitted = {key: layer for key, layer in engine.memory.layers.items() if layer.normal is not None}
    assert list(fitted) == [f"{point}:map" for point in resolution_points(engine.backbone)]
    assert all(layer.normal is not None and layer.normal.basis is not None for layer in fitted.values())


def test_pmi_keeps_no_covariance() -> None:
    memory = learned("pmi").memory
    assert all(layer.normal is None and layer.covariance is None for layer in memory.layers.values())


def test_without_selection_there_are_no_selectors() -> None:
    engine = tiny_engine("pmi", STREAM)
    engine.method = create_method("pmi", **{**settings("pmi"), "selection": False})
    engine.learn(STREAM[0])
    engine.learn(STREAM[1])
    assert engine.memory.selectors is None
    assert engine.memory.gaussians is not None


def test_the_number_of_pseudo_samples_grows_with_the_tasks() -> None:
    seen: list[int] = []

    class Spy(type(tiny_method("remix"))):  # type: ignore[misc]
        def remember(self, engine: Engine, data: ImageDataset) -> None:
            if isinstance(engine.replay, TensorReplay):
                seen.append(len(engine.replay))
            super().remember(engine, data)

    engine = tiny_engine("remix", STREAM)
    engine.method = Spy(**settings("remix"))
    for index in range(2):
        engine.learn(STREAM[index])
    assert seen == [40]


def test_later_tasks_of_remix_move_old_classifiers_only_when_balancing() -> None:
    engine = tiny_engine("remix", STREAM)
    engine.learn(STREAM[0])
    old = engine.student.head.classifier(0).weight.detach().clone()
    seen: dict[str, bool] = {}

    class Watch(type(engine.monitor)):  # type: ignore[misc]
        def epoch(self, report: Any) -> None:
            seen[report.stage] = torch.equal(engine.student.head.classifier(0).weight, old)

    engine.monitor = Watch()
    engine.learn(STREAM[1])
    assert seen == {"newest classifier": True, "last block": True, "network": True, "balance the head": False}


# --- the registry ---


def test_every_method_says_what_it_does_in_one_line() -> None:
    without_inversion = ["finetune", "joint", "lwf", "ssre", "praka"]
    inverting = ["deepinversion", "deepinversion-noise", "abd", "dcmi", "rdfcil", "pmi", "remix"]
    keeping = ["ldc", "efcpp", "adagauss", "drift", "ncm", "lda", "fecam", "ranpac", "auto"]
    on_transformers = ["zs-clip", "vpt", "coda-p", "moe-adapter", "attriclip"]
    assert without_inversion + inverting + keeping + on_transformers == METHODS
    assert all(line.endswith(".") and len(line) < 120 for line in list_methods().values())


def test_a_mistyped_method_is_named() -> None:
    with pytest.raises(ValueError, match="did you mean 'remix'"):
        create_method("remics")


def test_a_mistyped_setting_is_named() -> None:
    with pytest.raises(ValueError, match="did you mean 'samples'"):
        create_method("remix", sample=3)


def test_a_name_is_given_once() -> None:
    with pytest.raises(ValueError, match="there is a method 'pmi' already"):

        @method("pmi")
        class Other(Method):
            def stages(self, step: Step) -> Any:
                return []


@pytest.mark.parametrize(("name", "batches"), [("deepinversion", 1), ("abd", 1), ("rdfcil", 2), ("pmi", 2)])
def test_real_and_pseudo_samples_pass_batchnorm_as_each_method_has_it(name: str, batches: int) -> None:
    """ABD and its DeepInversion as one batch, R-DFCIL and PMI one after the other."""
    engine = learned(name, tasks=1)
    sizes: list[int] = []
    norm = next(module for module in engine.student.modules() if isinstance(module, torch.nn.BatchNorm2d))
    norm.register_forward_pre_hook(lambda module, inputs: sizes.append(len(inputs[0])) if module.training else None)
    engine.learn(STREAM[1])
    assert set(sizes) == {32 * 2 // batches, (60 - 32) * 2 // batches}
