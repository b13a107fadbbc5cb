"""DCMI: its losses against loops, who learns when, and models that find the task wherever they are used."""

import math
from dataclasses import replace

import pytest
import torch
from tiny import tiny_engine, tiny_method, tiny_stream
from tiny_runs import remix_run, tiny
from torch import nn

from remix.data import load
from remix.deploy.dream_options import DreamOptions
from remix.deploy.dream_plan import make_plan
from remix.deploy.evaluation import evaluate_data
from remix.deploy.export import export
from remix.deploy.inspection import inspect_file
from remix.experiments.run_directory import RunDirectory
from remix.learning import Engine, load_model
from remix.learning.engine_state import engine_tensors, restore
from remix.learning.stage import Batch
from remix.methods import create_method
from remix.methods.dcmi import CRITIC, GENERATOR, TURNED, answer_distance, mixtures
from remix.networks import Classifier, LinearHead, create_backbone

STREAM = tiny_stream()


def in_second_task(number):
    """An engine in a stage of its second task, its work, and a batch. Networks are in eval mode."""
    engine = tiny_engine("dcmi", STREAM)
    engine.learn(STREAM[0])
    engine.present = STREAM[1].train
    engine._prepare(STREAM[1])
    works = [stage.start(engine) for stage in engine.method.stages("later")]
    for network in (engine.student, *engine.modules.values()):
        network.eval()
    real, labels = next(iter(engine.images(STREAM[1].train)))
    return engine, works[number], Batch(real, labels, None)


def cosine(a, b):
    return float(a @ b) / math.sqrt(float(a @ a) * float(b @ b))


def softmax(values):
    hot = [math.exp(value) for value in values]
    return [value / sum(hot) for value in hot]


def test_a_class_is_mixed_with_those_whose_prototypes_are_like_its_own():
    prototypes = torch.randn(4, 6)
    naive = [softmax([10 * cosine(p, q) for q in prototypes]) for p in prototypes]
    torch.testing.assert_close(mixtures(prototypes), torch.tensor(naive))


def test_answers_are_compared_task_by_task():
    now, then = ([torch.randn(5, size) for size in (2, 3)] for _ in range(2))
    naive = 0.0
    for a, b in zip(now, then, strict=True):
        naive += sum(math.sqrt(float(((x - y) ** 2).sum())) for x, y in zip(a, b, strict=True)) / 5 / 2
    assert float(answer_distance(now, then)) == pytest.approx(naive, rel=1e-5)
    still = [part.requires_grad_() for part in now]
    answer_distance(still, [part.detach() for part in now]).backward()
    assert not any(part.grad.any() for part in still)  # and no NaN


def test_the_first_task_tells_class_and_rotation():
    engine = tiny_engine("dcmi", STREAM)
    engine.present = STREAM[0].train
    engine._prepare(STREAM[0])
    work = engine.method.stages("first")[0].start(engine)
    engine.student.eval()
    real, labels = next(iter(engine.images(STREAM[0].train)))
    naive, head, turned = 0.0, engine.student.head.classifier(0), engine.modules[TURNED]
    for turns in range(4):
        for image, label in zip(real.x, labels, strict=True):
            feature = engine.backbone.pooled(torch.rot90(image, turns, (1, 2))[None])
            logits = torch.cat([head(feature), turned(feature)], 1)[0] / 0.1
            naive -= float(logits.log_softmax(0)[int(label) + 2 * turns].detach()) / (4 * len(labels))
    found = work.losses(Batch(real, labels, None))
    assert {name: float(term.detach()) for name, term in found.items()} == pytest.approx(
        {"cross-entropy": naive}, rel=1e-4
    )


def test_the_terms_of_critic_and_generator():
    engine, work, batch = in_second_task(0)
    critic, painter, teacher = engine.modules[CRITIC], engine.modules[GENERATOR], engine.teacher
    prototypes = teacher.head.prototypes
    assert set(work.losses(batch)) == {"critic", "penalty"}  # the first batch is the critic's alone
    state = engine.generator.get_state()
    found = {name: float(term.detach()) for name, term in work.losses(batch).items()}
    engine.generator.set_state(state)
    count = len(batch.labels)
    old = torch.randint(2, (count,), generator=engine.generator)
    shares = mixtures(prototypes)[old]
    with torch.no_grad():
        painted = painter(shares, torch.randn(count, 100, generator=engine.generator))
        features = teacher.backbone.pooled(painted)
    judged = [float(critic(image[None]).detach()) for image in painted]
    real = [float(critic(image[None]).detach()) for image in batch.real.x]
    unlike = 0.0
    for feature, wanted in zip(features, shares, strict=True):
        seen = softmax([10 * cosine(feature, p) for p in prototypes])
        unlike -= sum(float(share) * math.log(p) for share, p in zip(wanted, seen, strict=True)) / count
    assert found.pop("penalty") > 0  # tests/inversion/test_conditional_generator.py
    naive = {
        "critic": (sum(judged) - sum(real)) / count,
        "semantics": 10 * unlike,
        "domain": -0.5 * sum(judged) / count,
    }
    assert found == pytest.approx(naive, rel=1e-4, abs=1e-5)


def test_critic_and_generator_each_learn_from_their_own_terms():
    engine, work, batch = in_second_task(0)
    critic, painter = engine.modules[CRITIC], engine.modules[GENERATOR]
    work.losses(batch)
    found = work.losses(batch)
    of_critic, of_painter = list(critic.parameters()), list(painter.parameters())
    for names, learns, stays in (
        (("critic", "penalty"), of_critic, of_painter),
        (("semantics", "domain"), of_painter, of_critic),
    ):
        total = sum(found[name] for name in names)
        slopes = torch.autograd.grad(total, [*learns, *stays], retain_graph=True, allow_unused=True)
        assert any(slope is not None and slope.any() for slope in slopes[: len(learns)])
        assert all(slope is None for slope in slopes[len(learns) :])


def test_the_generator_learns_from_every_so_many_batches():
    engine, _, batch = in_second_task(0)
    engine.modules[CRITIC].batches.zero_()
    method = replace(engine.method, critic_steps=3)
    losses = method.stages("later")[0].start(engine).losses
    assert [len(losses(batch)) for _ in range(7)] == [2, 2, 4, 2, 2, 4, 2]


def test_the_terms_of_a_later_task():
    engine, work, batch = in_second_task(1)
    teacher, head, backbone = engine.teacher, engine.student.head, engine.backbone
    for parameter in (*backbone.blocks()[-1].module.parameters(), *head.parameters()):
        parameter.data += 0.05 * torch.randn_like(parameter)
    state = engine.generator.get_state()
    found = {name: float(term.detach()) for name, term in work.losses(batch).items()}
    engine.generator.set_state(state)
    count = len(batch.labels)
    old = torch.randint(2, (count,), generator=engine.generator)
    noise = torch.randn(count, 100, generator=engine.generator)
    learned = turned = moved = 0.0
    with torch.no_grad():
        painted = engine.modules[GENERATOR](mixtures(teacher.head.prototypes)[old], noise)
        for image, label in zip(batch.real.x, batch.labels, strict=True):
            logits = head.classifier(1)(backbone.pooled(image[None]))[0] / 0.1
            learned -= float(logits.log_softmax(0)[int(label) - 2]) / count
        for number, image in enumerate((*painted, *batch.real.x)):
            now, then = backbone.pooled(image[None])[0], teacher.backbone.pooled(image[None])[0]
            if number < count:
                turned += (1 - cosine(now, then)) / count
            moved += float((head.classifier(0)(now) - teacher.head.classifier(0)(then)).norm()) / (2 * count)
    naive = {"cross-entropy": learned, "features": 10 * turned, "answers": 10 * moved}
    assert found == pytest.approx(naive, rel=1e-3, abs=1e-5)
    assert min(naive.values()) > 0.01


def test_later_tasks_change_the_last_block_and_the_classifiers_and_nothing_else():
    engine = tiny_engine("dcmi", STREAM)
    engine.learn(STREAM[0])
    before = {name: tensor.clone() for name, tensor in engine.student.state_dict().items()}
    assert before["head.prototypes"].any(1).all()
    engine.learn(STREAM[1])
    after = engine.student.state_dict()
    assert torch.equal(after["head.prototypes"][:2], before.pop("head.prototypes"))  # never measured again
    assert after["head.prototypes"].any(1).all()
    for name, tensor in before.items():
        learns = name.startswith(("head.", "backbone.convolutions.4."))
        assert torch.equal(after[name], tensor) != learns, name
    assert not engine.modules
    assert engine.memory.gaussians is None  # the head has them


def test_it_goes_on_to_the_same_bits_from_every_epoch_of_both_stages():
    stream, saved = tiny_stream(15), []
    engine = tiny_engine("dcmi", stream)
    engine.learn(stream[0])

    def save():
        tensors, record = engine_tensors(engine)
        saved.append(({key: tensor.clone() for key, tensor in tensors.items()}, record))

    engine.learn(stream[1], save)
    expected = engine.student.state_dict()
    assert {(record["done"], record["epoch"]) for _, record in saved} >= {(2, 1), (2, 3), (3, 1), (3, 2)}
    for tensors, record in saved[:-1]:
        again = tiny_engine("dcmi", stream)
        restore(again, tensors, record, {})
        again.learn(stream[1])
        assert [key for key, found in again.student.state_dict().items() if not torch.equal(found, expected[key])] == []


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A tiny run."""
    out = tmp_path_factory.mktemp("dcmi") / "run"
    assert remix_run(tiny("dcmi", out, "data.validation=0")) == 0
    return RunDirectory(out)


@pytest.mark.slow
def test_a_stored_model_finds_the_task_as_the_run_did(finished, tmp_path):
    model, summary = load_model(finished.model), finished.read_summary()
    data = load("digits").test
    tested = evaluate_data(model, data.select((data.labels < 3).nonzero()[:, 0]))
    assert tested.macro == pytest.approx(summary["metrics"]["last_accuracy_macro"])
    plain = nn.Linear(16, 3, bias=False)
    plain.weight.data = torch.cat([part.weight for part in model.classifier.head.classifiers])
    pictures = model.preprocessing.normalisation.normalise(data.batch(range(200))[0])
    features = model.classifier.backbone.pooled(pictures)
    assert not torch.equal(plain(features).argmax(1), model.classifier(pictures).argmax(1))
    told = export(model, "torch", tmp_path / "m.pt2")  # compares answers
    assert told.difference < 1e-4
    kinds = {total.kind: total.shapes for total in inspect_file(finished.model).totals()}
    assert kinds["prototypes"] == ((3, 16),)


def test_what_a_stored_model_cannot_do_is_told(finished, refusal, digits, tmp_path):
    model = load_model(finished.model)
    with pytest.raises(ValueError, match="not one of the kind 'routed': use --format onnx or torch"):
        export(model, "safetensors", tmp_path / "m.safetensors")
    with pytest.raises(ValueError, match="chooses a task first, which an inversion cannot follow"):
        make_plan(model, DreamOptions())
    said = refusal("learn", finished.model, digits, "--out", tmp_path / "m.remix")
    assert "a head of the kind 'routed' gives those of one task: begin with another head" in said


def test_what_cannot_work_is_refused_before_the_run(tmp_path, refusal):
    def check(shape, start=0):
        tiny_method("dcmi").check(create_backbone("resnet20", width=2, input_shape=shape), start)

    check((1, 12, 12))
    with pytest.raises(ValueError, match="8 x 12 pixels: make them square"):
        check((1, 8, 12))
    with pytest.raises(ValueError, match="sides divisible by 4, not 30 x 30"):
        check((1, 30, 30))
    with pytest.raises(ValueError, match="8 pixels are the fewest, not 4 x 4"):
        check((1, 4, 4))
    with pytest.raises(ValueError, match="no block of the network can be frozen"):
        check((1, 8, 8), start=1)
    with pytest.raises(ValueError, match="no place for images of known classes"):
        tiny_method("dcmi").stages("extend")
    for wrong in ({"temperature": 0.0}, {"critic_steps": 0}, {"width": 0}):
        with pytest.raises(ValueError, match="must be"):
            create_method("dcmi", **wrong)
    out = tmp_path / "out"
    said = refusal("run", "digits", "--method", "dcmi", "--out", out, "--set", "network.head=cosine")
    assert "the method dcmi has a head of its own, not 'cosine': leave network.head out" in said
    said = refusal("run", "digits", "--method", "lwf", "--out", out, "--set", "network.head=routed")
    assert "the method lwf compares the logits of all classes" in said
    assert not out.exists()
    backbone = create_backbone("convnet8", width=2)
    with pytest.raises(ValueError, match="the method dcmi learns with a head of the kind 'routed'"):
        Engine(Classifier(backbone, LinearHead(8)), tiny_method("dcmi"), STREAM.normalisation)
