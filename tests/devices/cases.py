"""What must work on any device; run by `test_another_device.py`."""

from functools import partial

import pytest
import small
import torch
from far_device import FAR, far_device
from safetensors.torch import save_file
from tiny import DRIFTING, tiny_engine, tiny_stream

import remix
import remix.deploy.learner
from remix.cli import main
from remix.data import TaskStream
from remix.deploy.dream_options import STRATEGIES
from remix.inversion import Checkpoint
from remix.laplace import Dct2, LaplaceCovariance, LaplaceNormal, LearnableNormal, fit, kernels
from remix.learning.engine import Engine, InterruptedInversion
from remix.learning.engine_state import engine_tensors, replay_tensors, restore
from remix.learning.model_file import load_model
from remix.learning.team import Team
from remix.methods import list_methods


class FarTeam(Team):
    """Networks and batches belong on the far device."""

    device = FAR


@pytest.fixture(autouse=True)
def far():
    with far_device():
        yield


def numbers(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0)) + 0.1


# --- the device ---


@pytest.mark.parametrize(
    "mistake",
    [
        lambda there, here: there + here,
        lambda there, here: torch.cat([there, here]),
        lambda there, here: here[there.long()],
        lambda there, here: there.normal_(generator=torch.Generator()),
        lambda there, here: torch.randn(3, generator=torch.Generator(), device=FAR),
        lambda there, here: there.numpy(),
    ],
)
def test_the_device_refuses_what_a_graphics_card_refuses(mistake):
    with pytest.raises(RuntimeError):
        mistake(torch.zeros(3, device=FAR), torch.zeros(3))


# --- the covariance ---


def laplace_normal(basis: Dct2 | None = None) -> LaplaceNormal:
    return LaplaceNormal(numbers(40), LaplaceCovariance(*(numbers(40) for _ in range(3))), basis)


def test_a_laplace_normal():
    near, rows = laplace_normal(), numbers(30, 40)
    there = near.to(FAR)
    found = there.log_prob(rows.to(FAR))
    assert found.device == FAR
    torch.testing.assert_close(found.cpu(), near.log_prob(rows), rtol=1e-4, atol=1e-4)
    assert fit(rows[:, :6].to(FAR)).loc.device == FAR  # merging is part of what REMIX does below


def test_a_seed_draws_the_same_everywhere(monkeypatch):
    monkeypatch.setattr(kernels, "native", lambda: None)  # which has noise of its own
    draws = [
        laplace_normal().to(device).sample((5,), generator=torch.Generator().manual_seed(3)).cpu()
        for device in (torch.device("cpu"), FAR)
    ]
    torch.testing.assert_close(draws[0], draws[1])


def test_a_learnable_normal_is_trained_saved_and_loaded():
    rows, found = numbers(30, 40), []
    for device in (torch.device("cpu"), FAR):
        model = LearnableNormal(laplace_normal(Dct2((2, 4, 5)))).to(device)
        optimiser = torch.optim.SGD(model.parameters(), lr=1e-3)
        (-model().log_prob(rows.to(device)).mean()).backward()
        optimiser.step()
        again = LearnableNormal(laplace_normal().to(device))
        again.load_state_dict(model.state_dict())
        normal = LaplaceNormal.from_state_dict(again.normal().state_dict())
        assert (normal.loc.device, normal.basis) == (device, model.basis)
        found.append(normal.log_prob(rows.to(device)).cpu())
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-4)


# --- learning ---


def learn(engine: Engine, stream: TaskStream, index: int, safe_point=lambda: None) -> None:
    engine.learn(stream.seen(index) if engine.method.keeps_images else stream[index], safe_point)


@pytest.mark.parametrize("name", [*list_methods(), DRIFTING])
def test_a_method_learns_the_same_everywhere(name):
    stream, right = tiny_stream(15), []
    for team in (Team(), FarTeam()):
        engine = tiny_engine(name, stream, team=team)
        for index in range(2):
            learn(engine, stream, index)
        assert next(engine.student.parameters()).device == team.device
        right.append(engine.evaluate_tasks([stream.test(0), stream.test(1)]))
    assert right[0] == right[1]


@pytest.mark.parametrize("name", ["joint", DRIFTING])
def test_a_learner_goes_on_after_an_interruption(name):
    stream, saved = tiny_stream(15), []
    engine = tiny_engine(name, stream, team=FarTeam())
    learn(engine, stream, 0)

    def save():
        tensors, record = engine_tensors(engine)
        kept = [{key: part.cpu().clone() for key, part in some.items()} for some in (tensors, replay_tensors(engine))]
        saved.append((kept[0], record, kept[1]))

    learn(engine, stream, 1, save)
    for tensors, record, replay in (saved[0], saved[2]):  # before it dreams, and within its first stage
        again = tiny_engine(name, stream, team=FarTeam())
        restore(again, tensors, record, replay)
        learn(again, stream, 1)
        weights = again.student.state_dict()
        for key, expected in engine.student.state_dict().items():
            torch.testing.assert_close(weights[key].cpu(), expected.cpu(), rtol=0, atol=0)


def test_an_inversion_goes_on_within_a_block(tmp_path):
    """What a checkpoint holds is on the processor."""
    stream, dreams = tiny_stream(15), []
    for stop_at in (None, 5):  # in a block that begins with what another one found
        engine = tiny_engine("remix", stream, team=FarTeam())
        learn(engine, stream, 0)
        steps = []

        def count(progress, steps=steps, stop_at=stop_at):
            steps.append(progress)
            if len(steps) == stop_at:
                raise KeyboardInterrupt

        engine.monitor.inversion = count
        if stop_at is not None:
            before = []  # of the generator, when it was last saved
            save = partial(lambda engine, before: before.append(engine.generator.get_state()), engine, before)
            with pytest.raises(InterruptedInversion) as stop:
                learn(engine, stream, 1, save)
            stop.value.checkpoint.save(tmp_path / "inversion")
            engine.inversion = Checkpoint.load(tmp_path / "inversion")
            engine.generator.set_state(before[-1])
        learn(engine, stream, 1)
        dreams.append({key: part.cpu() for key, part in engine.student.state_dict().items()})
    for key, expected in dreams[0].items():
        for other in dreams[1:]:
            torch.testing.assert_close(other[key], expected, rtol=0, atol=0)


# --- the product ---


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A model that learned two steps on the far device, and its images."""
    root = tmp_path_factory.mktemp("model")
    with far_device(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(remix.deploy.learner.Team, "on", lambda device: FarTeam())
        engine = small.learner(device="far")
        engine.learn(small.folder(root / "first", [0, 1]))
        engine.save(root / "before.remix")
        engine = remix.load(root / "before.remix", device="far", **small.QUICK)
        engine.learn(small.folder(root / "second", [2, 3]))
        engine.save(root / "model.remix")
    network = load_model(root / "before.remix").classifier
    save_file(
        {**network.backbone.state_dict(), "fc.weight": network.head.classifier(0).weight}, root / "weights.safetensors"
    )
    return root


MODEL = "{root}/model.remix"
DREAM = ("dream", MODEL, "--steps", "2", "--count", "4")
AUDIT = ("audit", MODEL, "--train", "{root}/first", "--held-out", "{root}/second", "--steps", "2", "--count", "4")
MEASURE = ("measure", "{root}/first", "--backbone", "convnet8", "--options", "width=4")


@pytest.mark.parametrize(
    "words",
    [
        ("predict", MODEL, "{root}/first"),
        ("evaluate", MODEL, "{root}/first"),
        *((*DREAM, "--strategy", name, "--out", f"{{root}}/{name}.png") for name in STRATEGIES),
        (*AUDIT, "--out", "{root}/audit.png"),
        (*MEASURE, "--weights", "{root}/weights.safetensors", "--views", "channels,map", "--out", "{root}/m.remix"),
    ],
    ids=lambda words: " ".join([words[0], *(word for word in words if word in STRATEGIES)]),
)
def test_a_command(learned, words):
    main([word.format(root=learned) for word in words] + ["--device", "far"])
