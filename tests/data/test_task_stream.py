"""Classes that arrive task after task."""

import gc
from dataclasses import replace

import pytest
import torch

from remix.data import DataError, MissingData, TaskStream, class_order, load
from remix.data.task_stream import ORDERS
from tests.data.samples import make_splits, numbers


@pytest.mark.parametrize(
    ("name", "count", "begins", "ends"),
    [
        ("A", 100, [23, 8, 11, 7, 48, 13, 1, 91, 94, 54], [33, 5, 53, 97, 49]),
        ("B", 200, [131, 181, 22, 172, 144, 92, 97, 187, 58, 93], [66, 10, 107, 194, 98]),
        ("C", 100, [68, 56, 78, 8, 23, 84, 90, 65, 74, 76], [29, 49, 57, 33]),
        ("D", 200, [168, 136, 51, 9, 183, 101, 171, 99, 42, 159], [195, 29, 177, 185, 161]),
    ],
)
def test_orders_are_the_published_ones(name, count, begins, ends):
    order = list(class_order(name, count))
    assert sorted(order) == list(range(count))
    assert order[: len(begins)] == begins
    assert order[-len(ends) :] == ends


def test_seeded_orders_continue_the_published_scheme():
    assert class_order("seed:1993", 100) == ORDERS["C"]
    assert class_order("seed:1993", 200) == ORDERS["D"]
    assert sorted(class_order("seed:0", 7)) == list(range(7))
    assert class_order("seed:0", 50) != class_order("seed:1", 50)


@pytest.mark.parametrize(
    ("order", "message"),
    [("A", "is for 100 classes and there are 10"), ("E", "no class order"), ("seed:x", "seed:1993"), ("", "natural")],
)
def test_orders_that_do_not_fit(order, message):
    with pytest.raises(DataError, match=message):
        TaskStream(make_splits(), 5, order)


def test_labels_are_positions_in_the_order():
    splits = make_splits(classes=10, each=6)
    stream = TaskStream(splits, 5, "seed:3")
    for task in stream:
        assert task.labels == range(2 * task.index, 2 * task.index + 2)
        assert task.original == stream.order[task.labels.start : task.labels.stop]
        assert task.classes == tuple(splits.classes[k] for k in task.original)
        for part, whole in ((task.train, splits.train), (task.test, splits.test)):
            assert set(part.labels.tolist()) == set(task.labels)
            for number, label in zip(numbers(part.images), part.labels.tolist(), strict=True):
                original = int(number) // 6
                assert stream.order[label] == original
                assert part.classes[label] == splits.classes[original]
            assert len(part) == sum(int((whole.labels == k).sum()) for k in task.original)


def test_every_image_arrives_once():
    splits = make_splits()
    stream = TaskStream(splits, 5, "seed:3")
    assert sorted(n for task in stream for n in numbers(task.train.images)) == numbers(splits.train.images)
    assert sorted(n for task in stream for n in numbers(task.test.images)) == numbers(splits.test.images)


def test_a_task_holds_no_image_of_another():
    """Not even out of sight: its tensors own no more memory than its images."""
    splits = make_splits()
    task = TaskStream(splits, 5)[2]
    total = sum(len(part) for part in (task.train, task.test)) * 3 * 4 * 4
    held = sum(part.images.untyped_storage().nbytes() for part in (task.train, task.test))
    assert held == total
    reachable, seen = [task], set()
    while reachable:
        found = reachable.pop()
        if id(found) in seen or isinstance(found, type):
            continue
        seen.add(id(found))
        assert not isinstance(found, TaskStream)
        if isinstance(found, torch.Tensor):
            assert found.dtype != torch.uint8 or found is task.train.images or found is task.test.images
        else:
            reachable += gc.get_referents(found)


def test_a_larger_first_task():
    assert TaskStream(make_splits(classes=10), 6, first=5).sizes == (5, 1, 1, 1, 1, 1)
    assert TaskStream(make_splits(classes=10), 3, first=4).sizes == (4, 3, 3)
    assert TaskStream(make_splits(classes=10), 1, first=10).sizes == (10,)


def test_only_the_first_classes_of_an_order():
    splits = make_splits(classes=10)
    stream = TaskStream(splits, 2, "seed:3", classes=4)
    assert stream.order == class_order("seed:3", 10)[:4]
    assert stream.sizes == (2, 2)
    assert [task.train.classes for task in stream] == [stream.classes] * 2
    assert sum(len(task.train) for task in stream) == 24


@pytest.mark.parametrize(
    ("division", "message"),
    [
        ({"tasks": 3}, "do not divide into 3 equal tasks; type tasks=1 or 2 or 5, or first=4"),
        ({"tasks": 0}, "1 to 10 tasks"),
        ({"tasks": 11}, "1 to 10 tasks"),
        ({"tasks": 4, "first": 5}, "leaves 5 of 10 classes, .* into 3 equal tasks; type first=7"),
        ({"tasks": 5, "first": 9}, "type first=6"),
        ({"tasks": 2, "first": 0}, "first=0|first task of 0"),
        ({"tasks": 2, "first": 10}, "leaves 0"),
        ({"tasks": 1, "first": 4}, "type first=10"),
        ({"classes": 11}, r"within 1\.\.10"),
        ({"classes": 0}, r"within 1\.\.10"),
    ],
)
def test_divisions_that_cannot_be_say_what_to_type(division, message):
    with pytest.raises(DataError, match=message):
        TaskStream(make_splits(classes=10), **division)


@pytest.mark.parametrize(("tasks", "first"), [(3, 4), (4, 7), (5, 6), (2, 9)])
def test_what_the_message_says_works(tasks, first):
    assert sum(TaskStream(make_splits(classes=10), tasks, first=first).sizes) == 10


def test_tasks_are_a_sequence():
    stream = TaskStream(make_splits(), 5)
    assert len(stream) == 5
    assert stream[-1].index == 4
    with pytest.raises(IndexError):
        stream[5]


def test_validation_is_carved_from_the_training_images():
    splits = make_splits(classes=10, each=10)
    stream = TaskStream(splits, 5, "seed:3")
    carved = stream.with_validation(0.2, seed=1)
    assert carved.order == stream.order
    kept = [n for task in carved for n in numbers(task.train.images)]
    held = [n for task in carved for n in numbers(task.test.images)]
    assert sorted(kept + held) == numbers(splits.train.images)
    assert all(task.test.counts()[name] == 2 for task in carved for name in task.classes)
    other = TaskStream(splits, 2, "natural").with_validation(0.2, seed=1)
    assert sorted(held) == sorted(n for task in other for n in numbers(task.test.images))


def test_files_stay_files(tmp_path):
    from tests.data.samples import make_folder

    stream = TaskStream(load(make_folder(tmp_path, classes="abcd"), size=8, lazy=True), 2, "seed:1")
    assert not stream[0].train.in_memory
    assert stream[1].train.batch([0])[0].shape == (1, 3, 8, 8)
    assert len(stream.test(1)) == 2


def test_a_part_of_the_classes_is_enough_for_those_who_ask_for_no_others():
    whole = make_splits(classes=10)
    here = torch.isin(whole.train.labels, torch.tensor([3, 4, 7, 9]))
    part = replace(whole, train=whole.train.select(here))
    order = class_order("seed:3", 10)
    first = next(place for place, label in enumerate(order) if label not in (3, 4, 7, 9))
    names = whole.classes
    with pytest.raises(MissingData) as caught:
        TaskStream(part, 5, "seed:3")
    assert f"the class {names[order[first]]} has no training images" in str(caught.value)
    assert f"4 of the 10 classes of {part.name}" in str(caught.value)
    for count in range(1, first + 1):
        stream = TaskStream(part, count, "seed:3", classes=count)
        assert stream.classes == tuple(names[label] for label in order[:count])
        assert all(len(task.train) for task in stream)
