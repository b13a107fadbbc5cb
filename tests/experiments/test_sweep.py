"""The runs of a sweep: one for each combination, in a folder of its own."""

import pytest

from remix.experiments import sweep
from remix.experiments.sweep import parse_seeds, sweep_jobs
from remix.experiments.sweep_runners import threads_of_each
from remix.support.settings import SettingError


def test_seeds_are_a_range_or_a_list():
    assert parse_seeds("0-4") == [0, 1, 2, 3, 4]
    assert parse_seeds("3, 7") == [3, 7]
    for wrong in ("", "a", "3-1", "1-", "-1"):
        with pytest.raises(SettingError):
            parse_seeds(wrong)


def test_every_combination_has_its_own_folder(tmp_path):
    jobs = sweep_jobs("digits", ["method=pmi,remix", "settings.samples=20,40"], [0, 1], tmp_path, None)
    assert len(jobs) == 8
    assert jobs[0].name == "digits-pmi-samples=20-seed0"
    assert len({job.folder for job in jobs}) == 8
    assert jobs[0].words[:2] == ("run", "digits")
    listed = sweep_jobs("digits", ["settings.first.milestones=[1,2]"], [0], tmp_path, None)
    assert "settings.first.milestones=[1,2]" in listed[0].words


@pytest.mark.parametrize(
    ("sets", "said"),
    [(["method=remx"], "did you mean 'remix'"), (["samples"], "key=value"), (["method=pmi,"], "value is missing"),
     (["method=pmi,pmi"], "given twice"), (["method=pmi", "settings.smples=3"], "did you mean 'samples'")],
)  # fmt: skip
def test_mistakes_are_found_before_anything_runs(tmp_path, sets, said):
    with pytest.raises(SettingError, match=said):
        sweep_jobs("digits", sets, [0], tmp_path, None)


@pytest.mark.parametrize(("seconds", "said"), [(2, "about 10 s"), (44, "about 40 s"), (140, "about 2 min")])
def test_what_is_left_is_never_nothing(monkeypatch, tmp_path, seconds, said):
    clock = iter([0.0, float(seconds)])
    monkeypatch.setattr(sweep.time, "monotonic", lambda: next(clock))
    jobs, told = sweep_jobs("digits", ["method=finetune,lda"], [0], str(tmp_path), None, False), []

    def start(jobs, parallel, report):
        report(jobs[0], "runs")
        report(jobs[0], "finished")
        return {job.name: "finished" for job in jobs}

    sweep.finish_jobs(jobs, 1, told.append, start)
    assert told[-1].endswith(f"1 of 2 finished, {said} left")


def test_runs_share_the_processors_and_take_no_more_threads_than_omp_num_threads(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert [threads_of_each(parallel) for parallel in (1, 2, 16)] == [8, 4, 1]
    for told, threads in (("1", 1), ("3", 3), ("6", 4), ("0", 4), ("many", 4)):
        monkeypatch.setenv("OMP_NUM_THREADS", told)
        assert threads_of_each(2) == threads
