"""An engine that was put where another one stood goes on as that one would have."""

import itertools
from pathlib import Path

import pytest
import torch
from tiny import DRIFTING, tiny_engine, tiny_method, tiny_stream, tiny_student

from remix.data import Task, TaskStream
from remix.learning.engine import Engine
from remix.learning.engine_state import engine_tensors, replay_tensors, restore
from remix.methods import list_methods, method_class
from remix.statistics import read_file, write_file


def task_of(engine: Engine, stream: TaskStream, index: int) -> Task:
    return stream.seen(index) if engine.method.keeps_images else stream[index]


def saved_on_the_way(name: str, folder: Path) -> Engine:
    """A engine after two tasks; at every safe point of the second it was written to a file 1, 2, 3, ..."""
    stream = tiny_stream(15)
    engine = tiny_engine(name, stream)
    engine.learn(task_of(engine, stream, 0))
    points = itertools.count(1)

    def save() -> None:
        tensors, record = engine_tensors(engine)
        replay = {f"replay/{key}": tensor for key, tensor in replay_tensors(engine).items()}
        write_file(folder / str(next(points)), "test", 1, tensors | replay, record)

    engine.learn(task_of(engine, stream, 1), save)
    return engine


def restored(name: str, file: Path) -> Engine:
    tensors, record = read_file(file, "test", 1)
    replay = {key.partition("/")[2]: tensor for key, tensor in tensors.items() if key.startswith("replay/")}
    engine = tiny_engine(name, tiny_stream(15))
    restore(engine, {key: t for key, t in tensors.items() if not key.startswith("replay/")}, record, replay)
    return engine


@pytest.mark.parametrize("name", [*list_methods(), DRIFTING])
def test_every_method_goes_on_with_the_same_bits(name, tmp_path):
    expected, record = engine_tensors(saved_on_the_way(name, tmp_path))
    exact = name != DRIFTING and method_class(name).exact
    for point in ("1", "2" if exact else "3"):  # before it dreams, and within its first stage if it has any
        engine = restored(name, tmp_path / point)
        engine.learn(task_of(engine, tiny_stream(15), 1))
        tensors, found = engine_tensors(engine)
        assert found == record
        assert tensors.keys() == expected.keys()
        assert [key for key in tensors if not torch.equal(tensors[key], expected[key])] == []


@pytest.mark.parametrize("name", ["zs-clip", "attriclip", "lda on trained weights"])
def test_a_network_that_never_learns_is_held_once_and_not_saved(name, tmp_path):
    stream, method = tiny_stream(15), tiny_method(name.partition(" ")[0]).on_trained()
    engine = Engine(tiny_student(method, 0), method, stream.normalisation, batch_size=32)
    engine.learn(stream[0])
    held, saved = [], []

    def look() -> None:
        held.append(engine.teacher)
        saved.append(engine_tensors(engine)[0])

    engine.learn(stream[1], look)
    assert held[0] is not None
    theirs = {id(parameter) for parameter in held[0].backbone.parameters()}
    assert theirs == {id(parameter) for parameter in engine.backbone.parameters()}
    names = {
        f"{part}/backbone.{key}" for part in ("student", "teacher") for key, _ in engine.backbone.named_parameters()
    }
    assert all(names.isdisjoint(tensors) for tensors in saved)


def test_a_state_of_another_method_or_network_is_refused(tmp_path):
    tensors, record = engine_tensors(saved_on_the_way("finetune", tmp_path))
    stream = tiny_stream(15)
    with pytest.raises(ValueError, match="is of method 'finetune', this engine has 'lwf'"):
        restore(tiny_engine("lwf", stream), tensors, record, {})
    del tensors["student/backbone.convolutions.0.conv.weight"]
    with pytest.raises(ValueError, match="does not fit this network"):
        restore(tiny_engine("finetune", stream), tensors, record, {})


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    """Of a engine within its second task."""
    folder = tmp_path_factory.mktemp("state")
    saved_on_the_way("finetune", folder)
    return read_file(folder / "3", "test", 1)


HOSTILE = [None, -1, 10**30, "x", [], {}, [10**12], [[]], {"a": 1}, float("nan"), True]


def test_a_state_with_sound_checksums_and_wrong_fields_is_told_in_a_sentence(state):
    tensors, record = state
    stream = tiny_stream(15)
    changed = [{key: v for key, v in record.items() if key != gone} for gone in record]
    changed += [record | {key: value} for key in record for value in HOSTILE]
    said = []
    for one in [*changed, {}, None, []]:
        try:
            restore(tiny_engine("finetune", stream), tensors, one, {})
        except ValueError as error:
            said.append(str(error))
    assert len(said) > 0.8 * len(changed)
    assert [text for text in said if not text.startswith("the state ") or "\n" in text] == []


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("counts", lambda t: t - 10**6),
        ("counts", lambda t: t[None]),
        ("generator", lambda t: t[:-1]),
        ("student/head.classifiers.0.weight", lambda t: t[:1]),
        ("student/head.classifiers.0.weight", lambda t: t * torch.nan),
        ("teacher/head.classifiers.0.weight", None),
        ("memory/none", lambda _: torch.zeros(3)),
    ],
)
def test_wrong_tensors_of_a_state_are_told_in_a_sentence(state, name, change):
    tensors, record = state
    changed = {key: t for key, t in tensors.items() if key != name}
    if change is not None:
        changed[name] = change(tensors.get(name))
    with pytest.raises(ValueError, match=r"the state (does not fit this network|lacks)"):
        restore(tiny_engine("finetune", tiny_stream(15)), changed, record, {})
