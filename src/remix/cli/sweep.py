"""`remix sweep`."""

from __future__ import annotations

import sys

from remix.cli.output import show_comparison

__all__ = ["sweep"]


def sweep(
    preset: str,
    *,
    set: list[str] | None = None,
    seeds: str = "0",
    jobs: int = 1,
    data: str | None = None,
    out: str = "runs",
    validation: bool = False,
    cluster: bool = False,
    slurm: list[str] | None = None,
    dry_run: bool = False,
) -> None:
    """Many runs: every combination of settings and seeds, several at a time; then a comparison.

    Finished runs are kept, unfinished ones go on. A run that was killed is tried once more, one that failed by itself
    is not. The same command can be typed again at any time, also with more seeds.

    Args:
        preset: One of those that remix presets lists, a file NAME.yaml of the same form, or a folder of your images.
        set: Settings that differ from the preset, with one value or several each: method=pmi,remix
            settings.samples=200,400; config.yaml of a run shows all that there are.
        seeds: Seeds with which every combination is run, such as 0-4 or 0,2,7.
        jobs: Runs at a time; the processors are shared between them.
        data: The folder that data sets are kept in; by default the one that REMIX_DATA names.
        out: The folder in which every run gets its own.
        validation: Test on a tenth of the training images instead of the test images, for choosing settings: the same
            images with every seed, others with --set data.validation_seed=1.
        cluster: Submit the runs to a Slurm cluster (needs pip install 'remix-dfcil[slurm]').
        slurm: Options of the cluster, as submitit names them: timeout_min=600 slurm_partition=gpu gpus_per_node=1.
        dry_run: Only print the runs and whether each is finished; run nothing.

    Examples:
        remix sweep digits --set method=finetune,remix --seeds 0-4 --jobs 2
        remix sweep cifar100-mini --data ~/data --set method=remix settings.inversion.prior.weight=0.1,0.5 --validation
        remix sweep cifar100-10 --seeds 1-5 --jobs 5 --cluster --slurm timeout_min=1440 gpus_per_node=1
    """
    import shlex
    from functools import partial

    from rich.console import Console

    from remix.experiments.compare import compare_by_data
    from remix.experiments.sweep import finish_jobs, parse_seeds, sweep_jobs
    from remix.experiments.sweep_runners import run_locally, run_on_slurm
    from remix.support.display import say

    if jobs < 1:
        raise ValueError(f"--jobs must be at least 1, got {jobs}")
    console = Console()
    runs = sweep_jobs(preset, set or (), parse_seeds(seeds), out, data, validation)
    say(console, f"{len(runs)} runs, {sum(run.finished for run in runs)} finished, {jobs} at a time, in {out}/")
    if dry_run:
        for run in runs:
            say(console, f"{'finished' if run.finished else 'to do':<9} remix {shlex.join(run.words)}")
        return
    start = partial(run_on_slurm, options=slurm or ()) if cluster else run_locally
    try:
        failed = finish_jobs(runs, jobs, partial(say, console), start)
    except KeyboardInterrupt:
        say(console, "interrupted; what was done is saved, and the same command goes on", style="red")
        sys.exit(130)
    for sentence in failed:
        say(console, sentence, style="red")
    done = [run.folder for run in runs if run.finished]
    if done:
        for name, found in compare_by_data(done).items():
            show_comparison(name, found, console)
    if failed:
        sys.exit(1)
