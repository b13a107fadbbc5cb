import pytest
import torch
from torch import nn

from remix.inversion import (
    Augmentation,
    Average,
    Checkpoint,
    Loss,
    Optimisation,
    Phase,
    Schedule,
    TensorVariable,
    Term,
    run_phases,
)
from remix.inversion.dream import chunks
from remix.statistics import DamagedFileError


def distance(target, of="inputs"):
    average = Average(lambda seen: (getattr(seen, of) - target[seen.part]).square().flatten(1).sum(1))
    return Term("distance", 1.0, Loss(average))


def climb(previous, generator):
    """Start from noise, towards one more than what the phase before found; the image is jittered."""
    start = torch.randn(3, 1, 4, 4, generator=generator)
    target = torch.zeros_like(start) if previous is None else previous + 1
    variable = TensorVariable(start, Augmentation(jitter=1))
    return Optimisation([distance(target)], nn.Identity(), lambda x: x, variable, Schedule(6, 0.2))


def phases():
    return [
        Phase("a", climb),
        Phase("b", climb, keep=True, usable=True),
        Phase("c", climb),
        Phase("d", climb, keep=True, usable=True),
    ]


@pytest.fixture
def whole():
    return run_phases(phases(), torch.Generator().manual_seed(5))


def test_a_phase_starts_from_what_the_last_one_found(whole):
    assert whole.finished
    assert whole.checkpoint is None
    assert len(whole.results) == 2
    assert set(whole.history) == {"a", "b", "c", "d"}


@pytest.mark.parametrize("stop", [0, 5, 7, 11, 12, 20, 23])
def test_a_run_can_be_stopped_saved_and_continued_anywhere(whole, tmp_path, stop):
    seen = []

    def interrupt(progress):
        seen.append(progress)
        if len(seen) == stop + 1:
            raise KeyboardInterrupt

    half = run_phases(phases(), torch.Generator().manual_seed(5), progress=interrupt)
    assert not half.finished
    assert len(half.results) == (0 if stop < 6 else 1 if stop < 18 else 2)
    half.checkpoint.save(tmp_path / "run.safetensors")
    loaded = Checkpoint.load(tmp_path / "run.safetensors")
    rest = run_phases(phases(), torch.Generator().manual_seed(99), resume=loaded)
    assert rest.finished
    for one, other in zip(rest.results, whole.results, strict=True):
        assert torch.equal(one, other)
    assert rest.history == whole.history


def test_what_is_written_on_the_way_is_a_checkpoint(whole, tmp_path):
    made = []

    def write(progress):
        made.append(progress)
        if len(made) == 14:
            progress.glance().save(tmp_path / "run.safetensors")

    run_phases(phases(), torch.Generator().manual_seed(5), progress=write)
    assert len(made) == 24
    rest = run_phases(phases(), torch.Generator(), resume=Checkpoint.load(tmp_path / "run.safetensors"))
    assert torch.equal(rest.results[1], whole.results[1])


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    def interrupt(_):
        raise KeyboardInterrupt

    half = run_phases(phases(), torch.Generator(), progress=interrupt)
    with pytest.raises(ValueError, match=r"another run: its phases are 4 \(a, b, c, d\), here they are 1 \(a\)"):
        run_phases(phases()[:1], torch.Generator(), resume=half.checkpoint)
    (tmp_path / "x").write_bytes(b"nothing")
    with pytest.raises(DamagedFileError):
        Checkpoint.load(tmp_path / "x")


@pytest.mark.parametrize(("count", "most"), [(1, 5), (10, 5), (11, 5), (4001, 4000), (7, 1)])
def test_chunks_are_few_and_of_nearly_equal_size(count, most):
    parts = chunks(count, most)
    sizes = [part.stop - part.start for part in parts]
    assert sum(sizes) == count
    assert max(sizes) <= most
    assert max(sizes) - min(sizes) <= 1
    assert len(parts) == -(-count // most)


def test_when_numbers_stop_being_finite_finished_results_and_a_checkpoint_are_kept(whole):
    from remix.inversion import InversionStoppedError

    calls = []

    def breaking(x):
        calls.append(1)
        return x * float("nan") if len(calls) > 22 else x  # phase d, step 4

    def fragile(previous, generator):
        start = torch.randn(3, 1, 4, 4, generator=generator)
        target = torch.zeros_like(start) if previous is None else previous + 1
        terms = [distance(target, "output")]
        return Optimisation(terms, nn.Identity(), breaking, TensorVariable(start), Schedule(6, 0.2))

    run = [Phase(name, fragile, keep=name in "bd", usable=name in "bd") for name in "abcd"]
    with pytest.raises(InversionStoppedError, match="step 4") as caught:
        run_phases(run, torch.Generator().manual_seed(5))
    assert len(caught.value.results) == 1
    calls.clear()
    rest = run_phases(run, torch.Generator(), resume=caught.value.checkpoint)
    assert rest.finished
    assert len(rest.results) == 2
