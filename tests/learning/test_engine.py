"""What a method may rely on: when it is called, what the engine says of the step, how items enter the network."""

from dataclasses import dataclass, replace

import pytest
import torch
from tiny import tiny_engine, tiny_stream

from remix.data import ImageDataset, Task
from remix.learning import Engine, Method, Stage, Training, Work
from remix.networks import Classifier, Items, LinearHead, create_backbone
from remix.networks.probe import evaluating

STREAM = tiny_stream(15)
CALLS: list[tuple] = []


@dataclass(frozen=True)
class Noting(Method):
    """Notes when it is asked for what."""

    def _note(self, what: str, engine: Engine) -> None:
        teacher = None if engine.teacher is None else engine.teacher.head.num_classes
        CALLS.append((what, engine.step, engine.old_classes, engine.new_classes, teacher))

    def check(self, backbone, start=0):
        CALLS.append(("check", start))

    def begin(self, engine):
        self._note("begin", engine)

    def dream(self, engine):
        self._note("dream", engine)

    def stages(self, step):
        CALLS.append(("stages", step))
        return [Stage("one", Training(1, 0.1), self._start), Stage("left out", Training(0, 0.1), self._never)]

    def _never(self, engine):
        raise AssertionError("a stage without epochs was started")

    def _start(self, engine):
        self._note("start", engine)
        head = engine.student.head

        def losses(batch):
            return {"size": head(engine.pooled(batch.real)).square().mean()}

        return Work([head], losses)

    def remember(self, engine, data):
        self._note("remember", engine)


def known_images_only(engine: Engine) -> Task:
    """Further images of classes 0 and 1, and no new class."""
    data = STREAM[0].train
    count = engine.student.head.num_classes
    return Task(engine.tasks, data, data, range(count, count), (), ())


def test_a_method_is_asked_in_the_order_of_the_contract_and_told_what_kind_of_step_it_is():
    CALLS.clear()
    student = Classifier(create_backbone("convnet8", width=2), LinearHead(8))
    engine = Engine(student, Noting(), STREAM.normalisation, batch_size=32)
    for task in (STREAM[0], STREAM[1], known_images_only(engine)):
        if not task.classes:
            task = known_images_only(engine)
        engine.learn(task)
    assert CALLS == [
        ("check", 0),
        ("begin", "first", 0, 2, None),
        ("stages", "first"),
        ("start", "first", 0, 2, None),
        ("remember", "first", 0, 2, None),
        ("begin", "later", 2, 2, 2),
        ("dream", "later", 2, 2, 2),
        ("stages", "later"),
        ("start", "later", 2, 2, 2),
        ("remember", "later", 2, 2, 2),
        ("begin", "extend", 4, 0, 4),
        ("dream", "extend", 4, 0, 4),
        ("stages", "extend"),
        ("start", "extend", 4, 0, 4),
        ("remember", "extend", 4, 0, 4),
    ]
    assert (engine.old_classes, engine.tasks) == (0, 2)


def test_the_next_task_begins_with_the_next_label():
    engine = tiny_engine("finetune", STREAM)
    with pytest.raises(ValueError, match="the next task must begin with label 0"):
        engine.learn(STREAM[1])


def test_items_that_enter_at_different_blocks_are_one_batch_above_both():
    engine = tiny_engine("finetune", STREAM)
    images = torch.randn(5, 1, 8, 8)
    with evaluating(engine.student):
        inside = Items(engine.backbone.features(images, stop=3), 3)
        both = engine.pooled_together(Items(images), inside)
        torch.testing.assert_close(both[0], engine.pooled(Items(images)))
        torch.testing.assert_close(both[1], both[0])


def test_accuracy_counts_answers_among_all_classes():
    engine = tiny_engine("finetune", STREAM)
    engine.student.head.grow(["0", "1"])
    with torch.no_grad():
        engine.student.head.classifier(0).weight.zero_()
    data = STREAM.test(0)
    assert engine.evaluate(data) == (int((data.labels == 0).sum()), len(data))
    swapped = replace(data, labels=1 - data.labels)
    assert isinstance(swapped, ImageDataset)
    assert engine.evaluate(swapped) == (int((data.labels == 1).sum()), len(data))
