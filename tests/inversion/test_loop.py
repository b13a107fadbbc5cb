import signal
import threading
from dataclasses import replace

import pytest
import torch
from torch import nn

from remix.inversion import (
    Augmentation,
    Average,
    Boost,
    CovariancePrior,
    InversionStoppedError,
    LoopState,
    Loss,
    Optimisation,
    Schedule,
    Seen,
    StatisticsKl,
    TensorVariable,
    Term,
    optimise,
)


class Bowl(Loss):
    """The mean square of the unknown: a term that needs no network."""

    def __init__(self, centre: float = 0.0) -> None:
        super().__init__(Average(lambda seen: (seen.variable - centre).square().flatten(1).sum(1)))


def task(start, *terms, **options) -> Optimisation:
    terms = terms or (Term("bowl", 1.0, Bowl()),)
    schedule = options.pop("schedule", Schedule(30, 0.5))
    return Optimisation(terms, nn.Identity(), lambda x: x, TensorVariable(start), schedule, **options)


def test_the_best_point_is_stored_with_the_loss_it_had(generator):
    start = torch.randn(4, 3, 2, 2, generator=generator)
    state, finished = optimise(task(start, schedule=Schedule(20, 3.0)), generator)
    assert finished
    history = state.history["loss"]
    assert state.best_loss == min(history)
    assert state.best_step == history.index(min(history))
    assert 0 < state.best_step < 19  # Adam with a large rate overshoots: the best is not the last
    x = state.best[0]
    assert Bowl().averages[0](Seen(slice(0, len(x)), x, x, x)).item() == state.best_loss


@pytest.mark.parametrize("keep_best", [True, False])
def test_the_steps_are_plain_adam(generator, keep_best):
    start = torch.randn(4, 3, 2, 2, generator=generator)
    state, _ = optimise(task(start, keep_best=keep_best), generator)
    plain = start.clone().requires_grad_()
    optimiser = torch.optim.Adam([plain], 0.5)
    for _ in range(30):
        optimiser.zero_grad()
        plain.square().flatten(1).sum(1).mean().backward()
        optimiser.step()
    torch.testing.assert_close(state.tensors[0], plain.detach())
    assert (state.best is not None) == keep_best


def test_the_start_is_left_alone(generator):
    start = torch.randn(4, 3, 2, 2, generator=generator)
    before = start.clone()
    for keep_best in (True, False):
        optimise(task(start, keep_best=keep_best), generator)
        assert torch.equal(start, before)


def test_boosting_doubles_up_to_the_cap_while_a_term_is_above_its_first_value(generator):
    start = torch.zeros(2, 1, 1, 1)
    terms = [Term("pull", 1.0, Bowl(2.0)), Term("hold", 0.01, Bowl(0.1), Boost(cap=10))]
    run = task(start, *terms, schedule=Schedule(8, 0.5))
    state, _ = optimise(run, generator)
    above = [value > state.history["hold"][0] for value in state.history["hold"]]
    expected = 1.0
    for grown in above[1:]:
        expected = min(expected * 2, 10.0) if grown else expected
    assert state.boosts == {"hold": expected}
    assert expected == 10.0
    # The objective that decides on the best is the one without boosts.
    sums = [a + 0.01 * b for a, b in zip(state.history["pull"], state.history["hold"], strict=True)]
    assert state.history["loss"] == pytest.approx(sums)


def test_boosted_weights_change_the_descent(generator):
    start = torch.zeros(2, 1, 1, 1)
    ends = []
    for boost in (None, Boost()):
        terms = [Term("pull", 1.0, Bowl(2.0)), Term("hold", 0.2, Bowl(0.1), boost)]
        state, _ = optimise(task(start, *terms, schedule=Schedule(60, 0.3)), generator)
        ends.append(state.tensors[0].mean().item())
    assert ends[1] < ends[0] - 0.3


def test_gradient_limit_cuts_the_norm(generator):
    start = torch.full((1, 1, 1, 2), 100.0)
    free, _ = optimise(task(start, schedule=Schedule(1, 0.5)), generator)
    limited, _ = optimise(task(start, schedule=Schedule(1, 0.5), gradient_limit=1.0), generator)
    assert limited.to_tensors()["first.0"].norm().item() == pytest.approx(0.1, rel=1e-5)  # (1 - beta1) times the limit
    assert free.to_tensors()["first.0"].norm().item() > 10


def augmented(images, knowledge, **options) -> Optimisation:
    own = [layer for key, layer in knowledge.layers.items() if "bn:input" in key]
    terms = [
        Term("statistics", 1.0, StatisticsKl(knowledge.moments), Boost()),
        Term("prior", 1.0, CovariancePrior(own, "laplace", "typical")),
    ]
    variable = TensorVariable(images, Augmentation(jitter=2, flip=0.5))
    schedule = Schedule(12, 0.1, warm_up=2, milestones=(5,))
    return Optimisation(terms, knowledge.backbone, knowledge.pooled, variable, schedule, **options)


def test_a_seed_decides_every_bit(images, knowledge):
    ends = [
        optimise(augmented(images, knowledge), torch.Generator().manual_seed(seed))[0].tensors[0] for seed in (1, 1, 2)
    ]
    assert torch.equal(ends[0], ends[1])
    assert not torch.equal(ends[0], ends[2])


@pytest.mark.parametrize("stop", [1, 5, 11])
def test_going_on_after_an_interruption_gives_the_same_bits(images, knowledge, stop):
    generator = torch.Generator().manual_seed(1)
    whole, _ = optimise(augmented(images, knowledge), generator)

    def interrupt(report):
        if report.step + 1 == stop:
            raise KeyboardInterrupt

    generator = torch.Generator().manual_seed(1)
    half, finished = optimise(augmented(images, knowledge), generator, progress=interrupt)
    assert not finished
    assert half.step == stop
    restored = LoopState.restore(half.tensors, half.to_tensors(), half.to_record())
    again, finished = optimise(augmented(images, knowledge), generator, state=restored)
    assert finished
    assert torch.equal(again.tensors[0], whole.tensors[0])
    assert torch.equal(again.best[0], whole.best[0])
    assert again.to_record() == whole.to_record()


def test_an_interruption_inside_a_step_undoes_its_draws(images, knowledge):
    run = augmented(images, knowledge)
    calls = []

    def interrupted(x):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return run.forward(x)

    generator = torch.Generator().manual_seed(1)
    state, finished = optimise(replace(run, forward=interrupted), generator)
    assert (state.step, finished) == (3, False)
    again, _ = optimise(augmented(images, knowledge), generator, state=state)
    whole, _ = optimise(augmented(images, knowledge), torch.Generator().manual_seed(1))
    assert torch.equal(again.tensors[0], whole.tensors[0])


@pytest.fixture
def ctrl_c():
    """Python's own handler, also where the tests run in the background and Ctrl-C is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_waits_for_the_step_to_be_complete(generator, ctrl_c):
    start = torch.randn(2, 1, 2, 2, generator=generator)
    pressed = []

    def press(made, tensor):  # runs while a step is being made
        if made == 5:
            signal.raise_signal(signal.SIGINT)
            pressed.append(made)

    state, finished = optimise(task(start, adjust=press), generator)
    assert pressed == [5]
    assert (state.step, finished) == (5, False)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_can_run_it(generator):
    results = []
    start = torch.randn(2, 1, 2, 2, generator=generator)
    thread = threading.Thread(target=lambda: results.append(optimise(task(start), generator)[1]))
    thread.start()
    thread.join()
    assert results == [True]


def test_progress_sees_every_step(images, knowledge):
    reports = []
    optimise(augmented(images, knowledge), torch.Generator().manual_seed(1), progress=reports.append)
    assert [report.step for report in reports] == list(range(12))
    assert [report.rate for report in reports] == [0.05, 0.05, *[0.1] * 5, *[0.05] * 5]
    assert set(reports[0].values) == {"statistics", "prior"}


def test_numbers_that_stop_being_finite_are_named_and_the_last_good_state_kept(images, knowledge, classifier):
    run = augmented(images, knowledge)
    block = classifier.backbone.convolutions[2]
    calls = []

    def poison(module, inputs, output):
        calls.append(1)
        return output.masked_fill(torch.ones_like(output, dtype=torch.bool), float("nan")) if len(calls) > 6 else output

    handle = block.conv.register_forward_hook(poison)
    try:
        with pytest.raises(InversionStoppedError, match=r"stopped in step 6.*convolutions\.2\.conv:output") as caught:
            optimise(run, torch.Generator().manual_seed(1))
    finally:
        handle.remove()
    error = caught.value
    assert str(error.point) == "convolutions.2.conv:output"
    assert error.state.step == 6
    assert error.state.best_loss == min(error.state.history["loss"])
    assert torch.equal(error.state.tensors[0], error.state.best[0])
    _, finished = optimise(run, torch.Generator().manual_seed(1), state=error.state)  # it can go on from there
    assert finished


def test_a_bad_start_stops_in_step_0_without_a_state(images, knowledge):
    bad = images.clone()
    bad[3, 0, 1, 1] = float("inf")
    with pytest.raises(InversionStoppedError, match=r"step 0.*first in image 3") as caught:
        optimise(augmented(bad, knowledge), torch.Generator())
    assert caught.value.state is None


def test_nothing_in_the_network_changes(images, knowledge, classifier):
    before = {name: tensor.clone() for name, tensor in classifier.state_dict().items()}
    optimise(augmented(images, knowledge), torch.Generator().manual_seed(1))
    assert all(torch.equal(tensor, before[name]) for name, tensor in classifier.state_dict().items())
    hooks = [module._forward_hooks or module._forward_pre_hooks for module in classifier.modules()]
    assert not any(hooks)


def test_bad_terms_are_refused(knowledge):
    with pytest.raises(ValueError, match="weight of term 'kl' must not be negative"):
        Term("kl", -1.0, StatisticsKl(knowledge.moments))
    with pytest.raises(ValueError, match="cap of at least 1"):
        Boost(0.5)


def test_steps_are_those_of_the_textbook(generator):
    ours = [torch.randn(5, 3, generator=generator), torch.randn(4, generator=generator)]
    plain = [(tensor.double(), torch.zeros_like(tensor).double(), torch.zeros_like(tensor).double()) for tensor in ours]
    state = LoopState(ours)
    for step in range(1, 21):
        gradients = [torch.randn(tensor.shape, generator=generator) for tensor in ours]
        rate = 0.3 / step
        moved = []
        for (x, m, v), g in zip(plain, (gradient.double() for gradient in gradients), strict=True):
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            x = x - rate * (m / (1 - 0.9**step)) / ((v / (1 - 0.999**step)).sqrt() + 1e-8)
            moved.append((x, m, v))
        plain = moved
        state.move(gradients, rate)
    assert state.to_record()["adam_steps"] == 20
    for i, (x, m, v) in enumerate(plain):
        torch.testing.assert_close(ours[i], x.float())
        torch.testing.assert_close(state.to_tensors()[f"first.{i}"], m.float())
        torch.testing.assert_close(state.to_tensors()[f"second.{i}"], v.float())


def test_a_gradient_laid_out_otherwise_moves_the_unknowns_the_same(generator):
    start, gradient = torch.randn(2, 2, 3, 4, 4, generator=generator)
    moved = []
    for layout in (torch.contiguous_format, torch.channels_last):
        state = LoopState([start.clone()])
        state.move([gradient.contiguous(memory_format=layout)], 0.1)
        moved.append(state.tensors[0])
    assert torch.equal(*moved)
