"""A stage changes what it names and nothing else, leaves every mode as it was, and keeps its best epoch."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from remix.learning import BestEpoch
from remix.learning.losses import LabelCounts
from remix.learning.stage import Batch, Training, Work
from remix.learning.team import Team
from remix.learning.trainer import EpochReport, Monitor, StageState, Trainer, TrainingStoppedError
from remix.networks import Items


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
        self.second = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))


class Recorder(Monitor):
    def __init__(self) -> None:
        self.reports: list[EpochReport] = []
        self.batches: list[tuple[int, int, int]] = []

    def epoch(self, report: EpochReport) -> None:
        self.reports.append(report)

    def batch(self, epoch: int, done: int, count: int) -> None:
        self.batches.append((epoch, done, count))


def data(generator: torch.Generator) -> Iterator[tuple[Items, Tensor]]:
    for _ in range(3):
        x = torch.randn(8, 3, generator=generator)
        yield Items(x), (x[:, 0] > 0).long()


def trainer(monitor: Monitor | None = None, seed: int = 0) -> Trainer:
    generator = torch.Generator().manual_seed(seed)
    return Trainer(Team(), generator, data, 3, None, LabelCounts(2), monitor or Monitor())


def objective(network: nn.Module):  # type: ignore[no-untyped-def]
    def terms(batch: Batch) -> dict[str, Tensor]:
        return {"cross-entropy": nn.functional.cross_entropy(network(batch.real.x), batch.labels)}

    return terms


def run(runner: Trainer, network: nn.Module, modules: list[nn.Module], training: Training, **more: Any) -> StageState:
    state = more.pop("state", StageState())
    after = more.pop("after", lambda: None)
    work = Work(modules, more.pop("losses", objective(network)), **more)
    runner.run("second", training, work, {"network": network}, state, after)
    return state


def changed(network: nn.Module, before: dict[str, Tensor]) -> set[str]:
    return {name for name, tensor in network.state_dict().items() if not torch.equal(tensor, before[name])}


def copy(network: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in network.state_dict().items()}


def test_only_what_is_named_is_trained_and_only_it_adapts() -> None:
    network = Network()
    before = copy(network)
    run(trainer(), network, [network.second], Training(2, 0.1))
    assert changed(network, before) == {name for name in before if name.startswith("second")}


def test_batchnorm_may_stay_as_it_is() -> None:
    network = Network()
    before = copy(network)
    run(replace(trainer(), adapt_batchnorm=False), network, [network], Training(1, 0.1))
    moved = changed(network, before)
    assert {"first.0.weight", "second.1.weight"} <= moved
    assert not any("running" in name for name in moved)


def test_modes_and_gradients_are_restored_also_after_an_exception() -> None:
    network = Network()
    network.first.eval()
    network.second[0].weight.requires_grad_(False)

    def fails(batch: Batch) -> dict[str, Tensor]:
        assert network.first.training
        assert not network.second.training
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        run(trainer(), network, [network.first], Training(1, 0.1), losses=fails)
    assert not network.first.training
    assert network.second.training
    assert not network.second[0].weight.requires_grad
    assert network.first[0].weight.requires_grad
    assert network.first[0].weight.grad is None


def test_a_module_may_learn_slower_than_the_rest() -> None:
    plain, slowed = Network(), Network()
    slowed.load_state_dict(plain.state_dict())
    before = copy(plain)
    one_step = Training(1, 0.1, momentum=0.0, weight_decay=0.0)
    for network, factors in ((plain, ()), (slowed, [(slowed.second, 0.25)])):
        runner = trainer()
        single = replace(runner, data=lambda generator: iter([next(data(generator))]), batches=1)
        run(single, network, [network], one_step, factors=factors)
    moved = [network.second[0].weight.detach() - before["second.0.weight"] for network in (plain, slowed)]
    torch.testing.assert_close(moved[1], 0.25 * moved[0])
    torch.testing.assert_close(plain.first[0].weight, slowed.first[0].weight)


STEPS = Training(4, 0.1, (2,))
COSINE = Training(4, 0.01, optimiser="adamw", schedule="cosine", warm_up=1, weight_decay=0.05, clip=0.5)


@pytest.mark.parametrize("schedule", [STEPS, COSINE, replace(COSINE, optimiser="adam", period=2)])
def test_going_on_after_an_epoch_gives_the_same_bits(schedule: Training) -> None:
    whole, parts = Network(), Network()
    parts.load_state_dict(whole.state_dict())
    run(trainer(), whole, [whole], schedule)

    class Stop(Exception):
        pass

    def stop() -> None:
        if state.epoch == 3:
            raise Stop

    runner, state = trainer(), StageState()
    with pytest.raises(Stop):
        run(runner, parts, [parts], schedule, state=state, after=stop)
    saved = StageState(state.epoch, {name: tensor.clone() for name, tensor in state.optimiser.items()})
    assert {name.partition("/")[0] for name in saved.optimiser} == {f"network.{n}" for n, _ in parts.named_parameters()}
    run(runner, parts, [parts], schedule, state=saved)
    assert all(torch.equal(a, b) for a, b in zip(whole.state_dict().values(), parts.state_dict().values(), strict=True))


def test_the_state_of_another_stage_is_refused() -> None:
    network = Network()
    foreign = StageState(1, {"network.third.weight/momentum_buffer": torch.zeros(3)})
    with pytest.raises(ValueError, match=r"'network.third.weight/momentum_buffer' of the optimiser is not of this"):
        run(trainer(), network, [network], STEPS, state=foreign)


def test_adamw_with_warm_up_and_cosine_is_that_of_torch() -> None:
    """Against a loop written out, batch by batch."""
    ours, theirs = Network(), Network()
    theirs.load_state_dict(ours.state_dict())
    run(trainer(), ours, [ours], COSINE)
    optimiser = torch.optim.AdamW(theirs.parameters(), weight_decay=0.05)
    generator, step = torch.Generator().manual_seed(0), 0
    theirs.train()
    for _ in range(4):
        for items, labels in data(generator):
            done = (step + 0.5) / 3
            rate = 0.01 * done if done < 1 else 0.005 * (1 + math.cos(math.pi * (done - 1) / 3))
            optimiser.param_groups[0]["lr"] = rate
            optimiser.zero_grad()
            nn.functional.cross_entropy(theirs(items.x), labels).backward()
            nn.utils.clip_grad_norm_(theirs.parameters(), 0.5)
            optimiser.step()
            step += 1
    for a, b in zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b)


def test_adam_adds_the_penalty_to_the_gradient() -> None:
    """Where AdamW does not."""
    parameters = [nn.Parameter(torch.tensor([1.0, -2.0])) for _ in range(2)]
    training = Training(1, 0.01, optimiser="adam", weight_decay=0.1)
    ours = training.start([parameters[0]], {})
    theirs = torch.optim.Adam([parameters[1]], 0.01)
    for parameter, penalty, optimiser in zip(parameters, (0.0, 0.05), (ours, theirs), strict=True):
        (parameter.sum() + penalty * parameter.square().sum()).backward()
        optimiser.step()
    torch.testing.assert_close(*parameters)


def test_adam_forgets_as_fast_as_it_is_told() -> None:
    ours, theirs = (nn.Parameter(torch.tensor([1.0, -2.0])) for _ in range(2))
    training = Training(1, 0.01, optimiser="adam", weight_decay=0.0, betas=(0.0, 0.9))
    for parameter, optimiser in (
        (ours, training.start([ours], {})),
        (theirs, torch.optim.Adam([theirs], 0.01, (0.0, 0.9))),
    ):
        for factor in (1.0, 5.0):
            (factor * parameter.square().sum()).backward()
            optimiser.step()
    assert torch.equal(ours, theirs)
    with pytest.raises(ValueError, match="betas must be two numbers from 0 to below 1"):
        Training(1, 0.1, betas=(0.9,))


def test_the_mean_of_a_term_is_over_the_batches_that_have_it() -> None:
    network, monitor, numbers = Network(), Recorder(), iter(range(10))

    def losses(batch: Batch) -> dict[str, Tensor]:
        always = nn.functional.cross_entropy(network(batch.real.x), batch.labels)
        return {"always": always} | ({"sometimes": always * 0 + 7} if next(numbers) % 2 else {})

    run(trainer(monitor), network, [network], Training(1, 0.1), losses=losses)
    assert monitor.reports[0].terms["sometimes"] == pytest.approx(7)


def test_a_cosine_with_a_period_rises_again() -> None:
    training = Training(100, 0.1, schedule="cosine", period=32)
    rates = [training.rate(epoch) for epoch in (0, 16, 32, 48, 64)]
    assert rates == pytest.approx([0.1, 0.05, 0, 0.05, 0.1])
    with pytest.raises(ValueError, match="period must be above 0"):
        Training(1, 0.1, period=0)


def test_the_quarter_cosine_of_clip_is_the_published_one_batch_by_batch() -> None:
    training = Training(3, 1e-3, schedule="quarter-cosine", warm_up=30)
    rates = [training.rate(i // 79, (i % 79 + 0.5) / 79, 79) for i in (0, 15, 30, 100, 200, 236)]
    assert rates == pytest.approx([0, 5e-4, 1e-3, 8.636e-4, 2.835e-4, 1.571e-5], rel=2e-4)


def test_steps_multiply_the_first_rate_and_not_the_last() -> None:
    """``lr * factor ** k`` is not the same number as multiplying k times."""
    training = Training(100, 0.1, (30, 60, 90))
    assert [training.rate(epoch) for epoch in (0, 29, 30, 60, 95)] == [0.1, 0.1, 0.1 * 0.1, 0.1 * 0.1**2, 0.1 * 0.1**3]


def test_reports_name_the_terms_and_rates() -> None:
    network, monitor = Network(), Recorder()
    runner = trainer(monitor)
    run(runner, network, [network], Training(3, 0.1, (1, 2)))
    assert [report.rate for report in monitor.reports] == pytest.approx([0.1, 0.01, 0.001])
    assert all(set(report.terms) == {"cross-entropy"} for report in monitor.reports)
    assert monitor.batches[:4] == [(0, 1, 3), (0, 2, 3), (0, 3, 3), (1, 1, 3)]
    assert int(runner.counts.counts.sum()) == 2 + 3 * 24


def test_reports_of_a_stage_that_goes_on_begin_with_its_epoch() -> None:
    network, monitor = Network(), Recorder()
    run(trainer(monitor), network, [network], Training(3, 0.1), state=StageState(2))
    assert monitor.batches == [(2, 1, 3), (2, 2, 3), (2, 3, 3)]


def test_a_loss_that_is_not_finite_stops_before_it_does_harm() -> None:
    network = Network()
    before = copy(network)

    def broken(batch: Batch) -> dict[str, Tensor]:
        value = nn.functional.cross_entropy(network(batch.real.x), batch.labels)
        return {"fine": value, "broken": value * float("nan")}

    with pytest.raises(TrainingStoppedError, match="broken became nan in epoch 1 of stage 'second'"):
        run(trainer(), network, [network.second[0]], Training(1, 0.1), losses=broken)
    assert changed(network, before) == set()


@pytest.mark.parametrize(
    "arguments",
    [
        {"epochs": -1, "lr": 0.1},
        {"epochs": 1, "lr": float("nan")},
        {"epochs": 1, "lr": 1, "milestones": (3, 2)},
        {"epochs": 1, "lr": 1, "clip": 0},
    ],
)
def test_bad_schedules_are_refused(arguments: dict) -> None:  # type: ignore[type-arg]
    with pytest.raises(ValueError, match="must"):
        Training(**arguments)


def judged_run(values, patience=2):
    """A stage whose weight is the number of the epoch; the epochs made and the weight that stays."""
    module = nn.Linear(1, 1)
    scores = iter(values)
    best = BestEpoch(lambda: next(scores), patience)
    best.begin()
    made = 0
    for number in range(len(values)):
        with torch.no_grad():
            module.weight.fill_(number)
        made += 1
        if best.after_epoch([module]):
            break
    best.end([module])
    return made, float(module.weight)


def test_goes_back_to_the_best():
    assert judged_run([3.0, 1.0, 2.0]) == (3, 1.0)


def test_stops_when_patience_ends():
    assert judged_run([3.0, 1.0, 2.0, 2.0, 0.0]) == (4, 1.0)


def test_goes_on_while_things_get_better():
    assert judged_run([3.0, 2.0, 1.0, 0.5]) == (4, 3.0)


def test_a_judgement_that_is_not_a_number_is_never_best():
    assert judged_run([float("nan"), 2.0, float("nan")]) == (3, 1.0)


def test_what_is_held_stays_in_eval_mode_while_the_rest_learns() -> None:
    network = Network()
    before = copy(network)

    def losses(batch: Batch) -> dict[str, Tensor]:
        assert network.first.training
        assert not network.second.training
        return objective(network)(batch)  # type: ignore[no-any-return]

    run(trainer(), network, [network], Training(1, 0.1), losses=losses, held=[network.second])
    assert all(name.startswith("first") for name in changed(network, before))
    assert "first.0.weight" in changed(network, before)
