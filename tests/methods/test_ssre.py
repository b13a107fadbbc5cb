"""SSRE: its losses against loops, its adapters, and what of the network may change when."""

import math

import pytest
import torch
from tiny import tiny_engine, tiny_stream
from tiny_transformer import TinyTransformer
from torch import nn

from remix.cli.run import run
from remix.learning.stage import Batch
from remix.methods import create_method
from remix.methods.ssre import Adapters, likeness, selected_cross_entropy, selected_distillation

STREAM = tiny_stream()


def cosine(a, b):
    return float(a @ b) / math.sqrt(float(a @ a) * float(b @ b))


@pytest.fixture
def drawn():
    torch.manual_seed(0)
    return torch.randn(6, 5), torch.randn(3, 5), torch.randn(6, 4), torch.randint(4, (6,)), torch.randn(6, 5)


def test_likeness_is_the_largest_cosine_and_never_negative(drawn):
    features, prototypes, *_ = drawn
    features = torch.cat([features, -prototypes.sum(0, keepdim=True)]).requires_grad_()
    naive = [max(0.0, *(cosine(f, p) for p in prototypes)) for f in features.detach()]
    found = likeness(features, prototypes)
    assert not found.requires_grad
    torch.testing.assert_close(found, torch.tensor(naive))


def test_cross_entropy_counts_what_is_not_like_old_classes_and_distillation_what_is(drawn):
    features, prototypes, logits, labels, before = drawn
    like_old = likeness(features, prototypes)
    learned = kept = 0.0
    for row in range(6):
        hot = [math.exp(float(value) / 0.1) for value in logits[row]]
        learned -= (1 - float(like_old[row])) * math.log(hot[int(labels[row])] / sum(hot)) / 6
        kept += float(like_old[row]) * math.sqrt(float(((features[row] - before[row]) ** 2).sum()))
    assert float(selected_cross_entropy(logits, labels, like_old, 0.1)) == pytest.approx(learned, rel=1e-4)
    assert float(selected_distillation(features, before, like_old)) == pytest.approx(kept, rel=1e-5)


def test_features_that_have_not_moved_have_a_gradient():
    features = torch.ones(2, 3, requires_grad=True)
    selected_distillation(features, features.detach(), torch.ones(2)).backward()
    assert torch.equal(features.grad, torch.zeros(2, 3))


@pytest.mark.parametrize(
    "convolution",
    [
        nn.Conv2d(4, 6, 3, padding=1),
        nn.Conv2d(4, 6, 5, stride=2, padding=2, bias=False),
        nn.Conv2d(4, 6, 1, stride=2),
        nn.Conv2d(4, 6, 3, padding=2, dilation=2, groups=2),
    ],
)
def test_a_folded_adapter_gives_what_it_gave_beside(convolution):
    images, network = torch.randn(2, 4, 9, 9), nn.Sequential(convolution)
    alone = network(images)
    adapters = Adapters([convolution])
    adapters.attach()
    assert torch.equal(network(images), alone)  # it begins with nothing
    nn.init.normal_(adapters.branches[0].weight)
    adapters.attach()  # as after an interruption: it counts once all the same
    beside = network(images)
    assert not torch.allclose(beside, alone)
    adapters.fold()
    torch.testing.assert_close(network(images), beside, rtol=1e-4, atol=1e-5)
    assert not convolution._forward_hooks


def test_later_tasks_change_the_middle_of_kernels_the_head_and_nothing_else():
    engine = tiny_engine("ssre", STREAM)
    engine.learn(STREAM[0])
    before = {name: tensor.clone() for name, tensor in engine.student.state_dict().items()}
    prototypes = engine.memory.gaussians.mean.clone()
    engine.learn(STREAM[1])
    after = engine.student.state_dict()
    for name, tensor in before.items():
        moved = after[name] != tensor
        if tensor.dim() == 4:
            assert moved[:, :, 1, 1].any()
            moved[:, :, 1, 1] = False
        assert bool(moved.any()) == name.startswith("head"), name
    assert torch.equal(engine.memory.gaussians.mean[:2], prototypes)  # never measured again
    assert engine.memory.gaussians.labels == (0, 1, 2, 3)
    assert not engine.modules


def test_the_terms_of_a_later_task():
    engine = tiny_engine("ssre", STREAM)
    engine.learn(STREAM[0])
    engine.present = STREAM[1].train
    engine._prepare(STREAM[1])
    stage = engine.method.stages("later")[0]
    work = stage.start(engine)
    engine.student.eval()
    real, labels = next(iter(engine.images(STREAM[1].train)))
    state = engine.generator.get_state()
    found = work.losses(Batch(real, labels, None))
    assert float(found["features"].detach()) == pytest.approx(0, abs=1e-3)  # the adapters are zero
    engine.generator.set_state(state)
    old = torch.randint(2, (len(labels),), generator=engine.generator)
    logits = engine.student.head(engine.memory.gaussians.mean[old])
    naive = 10 * nn.functional.cross_entropy(logits / 0.1, old)
    torch.testing.assert_close(found["prototypes"], naive)


def test_what_cannot_work_is_refused_before_the_run(tmp_path, capsys):
    with pytest.raises(ValueError, match="TinyTransformer has none that could take them"):
        create_method("ssre").check(TinyTransformer())
    with pytest.raises(ValueError, match=r"task 1 has only one \(0\): make fewer tasks"):
        run("digits", method="ssre", set=["data.tasks=10"], out=str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    with pytest.raises(ValueError, match="no place for images of known classes"):
        create_method("ssre").stages("extend")
    with pytest.raises(ValueError, match="temperature must be above 0"):
        create_method("ssre", temperature=0.0)
