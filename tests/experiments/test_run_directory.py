"""Whether a run may go into a folder while others come and go."""

import pytest
from tiny_runs import config_of, remix_run, tiny

from remix.experiments.run_directory import RunDirectory, RunDirectoryError


def test_two_processes_do_not_share_a_folder_also_when_a_third_one_has_just_left_it(tmp_path):
    fcntl = pytest.importorskip("fcntl")
    out, typed = tmp_path / "run", tiny("finetune", tmp_path / "run")
    with RunDirectory(out).open(config_of(typed)):
        opened = open(out / "checkpoints" / "lock", "a")  # noqa: SIM115 (by a process that comes before its end)
    with opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        with pytest.raises(RunDirectoryError, match="another process"):
            remix_run(typed, resume=True)


def test_a_run_of_other_settings_that_came_first_is_left_alone(tmp_path):
    first, second = (tiny("finetune", tmp_path / "run", seed=seed) for seed in (0, 1))
    directory = RunDirectory(tmp_path / "run")
    directory.check(config_of(second), resume=False)
    with directory.open(config_of(first)):
        pass
    with pytest.raises(RunDirectoryError, match="other settings"), directory.open(config_of(second)):
        pass
