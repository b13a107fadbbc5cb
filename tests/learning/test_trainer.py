"""A stage changes what it names and nothing else, and leaves every mode as it was."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from remix.learning.class_balance import LabelCounts
from remix.learning.monitor import EpochReport, Monitor
from remix.learning.sgd import Sgd
from remix.learning.stage import Batch, Stage
from remix.learning.team import Team
from remix.learning.trainer import StageState, Trainer, TrainingStoppedError


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


def data(generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    for _ in range(3):
        x = torch.randn(8, 3, generator=generator)
        yield x, (x[:, 0] > 0).long()


def trainer(monitor: Monitor | None = None, seed: int = 0) -> Trainer:
    generator = torch.Generator().manual_seed(seed)
    return Trainer(Team(), generator, data, 3, None, LabelCounts(2), monitor or Monitor())


def objective(network: nn.Module):  # type: ignore[no-untyped-def]
    def terms(batch: Batch) -> dict[str, Tensor]:
        return {"cross-entropy": nn.functional.cross_entropy(network(batch.images), batch.labels)}

    return terms


def changed(network: nn.Module, before: dict[str, Tensor]) -> set[str]:
    return {name for name, tensor in network.state_dict().items() if not torch.equal(tensor, before[name])}


def copy(network: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in network.state_dict().items()}


def test_only_what_is_named_is_trained_and_only_it_adapts() -> None:
    network = Network()
    before = copy(network)
    stage = Stage("second", [network.second], Sgd(2, 0.1), objective(network))
    trainer().run(stage, [network], StageState(), lambda: None)
    assert changed(network, before) == {name for name in before if name.startswith("second")}


def test_adapting_may_be_chosen_apart_from_training() -> None:
    network = Network()
    before = copy(network)
    stage = Stage("second", [network.second], Sgd(1, 0.1), objective(network), adapting=[network.first])
    trainer().run(stage, [network], StageState(), lambda: None)
    moved = changed(network, before)
    assert {"first.1.running_mean", "second.0.weight"} <= moved
    assert not any("second.1.running" in name for name in moved)
    assert "first.0.weight" not in moved


def test_modes_and_gradients_are_restored_also_after_an_exception() -> None:
    network = Network()
    network.first.eval()
    network.second[0].weight.requires_grad_(False)

    def fails(batch: Batch) -> dict[str, Tensor]:
        assert network.first.training
        assert not network.second.training
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        trainer().run(Stage("s", [network.first], Sgd(1, 0.1), fails), [network], StageState(), lambda: None)
    assert not network.first.training
    assert network.second.training
    assert not network.second[0].weight.requires_grad
    assert network.first[0].weight.requires_grad
    assert network.first[0].weight.grad is None


def test_a_module_may_learn_slower_than_the_rest() -> None:
    plain, slowed = Network(), Network()
    slowed.load_state_dict(plain.state_dict())
    before = copy(plain)
    one_step = Sgd(1, 0.1, momentum=0.0, weight_decay=0.0)
    for network, factors in ((plain, ()), (slowed, [(slowed.second, 0.25)])):
        runner = trainer()
        single = replace(runner, data=lambda generator: iter([next(data(generator))]), batches=1)
        stage = Stage("s", [network], one_step, objective(network), factors=factors)
        single.run(stage, [network], StageState(), lambda: None)
    moved = [network.second[0].weight.detach() - before["second.0.weight"] for network in (plain, slowed)]
    torch.testing.assert_close(moved[1], 0.25 * moved[0])
    torch.testing.assert_close(plain.first[0].weight, slowed.first[0].weight)


def test_going_on_after_an_epoch_gives_the_same_bits() -> None:
    schedule = Sgd(4, 0.1, (2,))
    whole, parts = Network(), Network()
    parts.load_state_dict(whole.state_dict())
    runner = trainer()
    runner.run(Stage("s", [whole], schedule, objective(whole)), [whole], StageState(), lambda: None)

    class Stop(Exception):
        pass

    def stop() -> None:
        if state.epoch == 3:
            raise Stop

    runner, state = trainer(), StageState()
    with pytest.raises(Stop):
        runner.run(Stage("s", [parts], schedule, objective(parts)), [parts], state, stop)
    saved = StageState(state.epoch, [momentum.clone() for momentum in state.momentum])
    runner.run(Stage("s", [parts], schedule, objective(parts)), [parts], saved, lambda: None)
    assert all(torch.equal(a, b) for a, b in zip(whole.state_dict().values(), parts.state_dict().values(), strict=True))


def test_reports_name_the_terms_and_rates() -> None:
    network, monitor = Network(), Recorder()
    stage = Stage("s", [network], Sgd(3, 0.1, (1, 2)), objective(network))
    runner = trainer(monitor)
    runner.run(stage, [network], StageState(), lambda: None)
    assert [report.rate for report in monitor.reports] == pytest.approx([0.1, 0.01, 0.001])
    assert all(set(report.terms) == {"cross-entropy"} for report in monitor.reports)
    assert monitor.batches[:4] == [(0, 1, 3), (0, 2, 3), (0, 3, 3), (1, 1, 3)]
    assert int(runner.counts.counts.sum()) == 2 + 3 * 24


def test_reports_of_a_stage_that_goes_on_begin_with_its_epoch() -> None:
    network, monitor = Network(), Recorder()
    stage = Stage("s", [network], Sgd(3, 0.1), objective(network))
    trainer(monitor).run(stage, [network], StageState(2), lambda: None)
    assert monitor.batches == [(2, 1, 3), (2, 2, 3), (2, 3, 3)]


def test_a_loss_that_is_not_finite_stops_before_it_does_harm() -> None:
    network = Network()
    before = copy(network)

    def broken(batch: Batch) -> dict[str, Tensor]:
        value = nn.functional.cross_entropy(network(batch.images), batch.labels)
        return {"fine": value, "broken": value * float("nan")}

    with pytest.raises(TrainingStoppedError, match="broken became nan in epoch 1 of stage 'second'"):
        trainer().run(Stage("second", [network.second[0]], Sgd(1, 0.1), broken), [network], StageState(), lambda: None)
    assert changed(network, before) == set()


@pytest.mark.parametrize(
    "arguments",
    [{"epochs": -1, "lr": 0.1}, {"epochs": 1, "lr": float("nan")}, {"epochs": 1, "lr": 1, "milestones": (3, 2)}],
)
def test_bad_schedules_are_refused(arguments: dict) -> None:  # type: ignore[type-arg]
    with pytest.raises(ValueError, match="must"):
        Sgd(**arguments)
