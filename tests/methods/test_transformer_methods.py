"""Methods on transformers: what learns, and what they refuse."""

import pytest
import torch
from tiny import tiny_engine, tiny_method, tiny_sentences, tiny_stream, tiny_student
from torch.nn.functional import cross_entropy

from remix.learning.engine import Engine
from remix.learning.trainer import TrainingStoppedError
from remix.methods import create_method, list_methods, method_class
from remix.methods.adapter_training import local_loss
from remix.networks import Classifier, Items, create_backbone, create_head

STREAM = tiny_stream()
METHODS = [name for name in list_methods() if method_class(name).transformers]
PROMPTED = ["vpt", "coda-p", "moe-adapter"]


@pytest.mark.parametrize("name", PROMPTED)
@pytest.mark.parametrize("head", ["linear", "text"])
def test_only_what_is_plugged_in_and_the_newest_classifier_learn(name, head):
    method = tiny_method(name)
    engine = Engine(tiny_student(method, 0, head), method, STREAM.normalisation, batch_size=32)
    engine.learn(STREAM[0])
    before = {key: value.clone() for key, value in engine.student.state_dict().items()}
    engine.learn(STREAM[1])
    after = engine.student.state_dict()
    changed = {key for key in before if not torch.equal(before[key], after[key])}
    assert changed
    assert all(".adapter." in key or ".prompts." in key for key in changed)
    assert any(parameter in key for key in changed for parameter in ("down", "tokens", "components"))


def test_zero_shot_is_the_text_head_on_the_network_as_it_is():
    engine = tiny_engine("zs-clip", STREAM)
    before = {key: value.clone() for key, value in engine.backbone.state_dict().items()}
    for task in STREAM:
        engine.learn(task)
    assert all(torch.equal(value, engine.backbone.state_dict()[key]) for key, value in before.items())
    head = create_head("text", 8, **tiny_sentences())
    head.grow(STREAM.classes)
    images = STREAM.normalisation.normalise(STREAM.test(1).images)
    with torch.no_grad():
        torch.testing.assert_close(engine.student.eval()(images), head(engine.backbone.pooled(images)))


def test_attributes_learn_and_both_towers_stay():
    engine = tiny_engine("attriclip", STREAM)
    before = {key: value.clone() for key, value in engine.student.state_dict().items()}
    for task in STREAM:
        engine.learn(task)
    after = engine.student.state_dict()
    assert {key for key in before if not torch.equal(before[key], after[key])} == {
        "head.attributes.keys", "head.attributes.prompts",
    }  # fmt: skip


def test_the_local_loss_is_over_the_texts_of_the_present_task_alone():
    engine = tiny_engine("zs-clip", STREAM)
    engine.learn(STREAM[0])
    engine._prepare(STREAM[1])
    images, labels = STREAM.normalisation.normalise(STREAM[1].train.images), STREAM[1].train.labels
    logits = engine.student(images)
    expected = cross_entropy(logits[:, 2:], labels - 2)
    torch.testing.assert_close(local_loss(engine, Items(images), labels), expected)


def test_numbers_that_are_not_finite_are_told_with_the_block_they_begin_in():
    engine = tiny_engine("moe-adapter", STREAM)
    engine.backbone.layers[1].mlp.down.weight.data.fill_(torch.inf)
    with pytest.raises(TrainingStoppedError, match=r"local became nan .* the output of block 'layers.1' already"):
        engine.learn(STREAM[0])


@pytest.mark.parametrize("name", PROMPTED)
def test_a_network_without_adapters_is_refused(name):
    with pytest.raises(ValueError, match=f"the method {name} learns .* begin with network.backbone=hf:PATH"):
        create_method(name).check(create_backbone("convnet8"))


def test_methods_choose_what_is_plugged_in():
    kinds = {name: [create_method(name).adapter_kind(asked) for asked in (None, "moe", "prompts")] for name in METHODS}
    assert kinds["vpt"] == ["deep-prompts", "deep-prompts", "prompts"]
    assert kinds["coda-p"] == ["coda"] * 3
    assert kinds["moe-adapter"] == ["moe"] * 3
    assert kinds["zs-clip"] == [None] * 3
    assert create_method("ncm").adapter_kind("moe") is None
    assert create_method("remix").adapter_kind("prompts") == "prompts"


def test_zero_shot_without_texts_and_too_many_tasks_for_a_pool_are_refused():
    with pytest.raises(ValueError, match=r"knows classes by their names: set network\.head=text"):
        create_method("zs-clip").head_kind("linear")
    with pytest.raises(ValueError, match="the pool of coda-p has room for 10 tasks, and there are 11"):
        create_method("coda-p").check_tasks([["a"]] * 11)


@pytest.mark.parametrize("name", ["finetune", "joint", "ncm", "lda", "ranpac"])
def test_plain_methods_and_exact_heads_learn_on_the_same_network(name):
    method = tiny_method(name).on_trained()
    student = tiny_student(tiny_method("moe-adapter"), 0)
    head = create_head("text", 8, **tiny_sentences()) if method.head_kind("text") == "text" else student.head
    engine = Engine(Classifier(student.backbone, head), method, STREAM.normalisation, batch_size=32)
    for index in range(2):
        engine.learn(STREAM.seen(index) if method.keeps_images else STREAM[index])
    correct, counts = engine.evaluate_tasks([STREAM.test(0), STREAM.test(1)])
    assert counts == [20, 20]
    assert sum(correct) > 0
