"""`remix sweep`."""

from __future__ import annotations

import sys

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

    Finished runs are kept, unfinished ones go on, a run that crashed is tried once more: the same command can be typed
    again at any time, also with more seeds.

    Args:
        preset: As of remix run.
        set: Settings as of remix run, with one value or several: method=pmi,remix settings.samples=200,400.
        seeds: Of every combination, such as 0-4 or 0,2,7.
        jobs: Runs at a time; the processors are shared between them.
        data: The folder that data sets are kept in; by default the one that REMIX_DATA names.
        out: The folder in which every run gets its own.
        validation: Test on a tenth of the training images instead of the test images, for choosing settings: the same
            images with every seed, others with --set data.validation_seed=1.
        cluster: Submit the runs to a Slurm cluster (needs pip install 'remix-dfcil[slurm]').
        slurm: Options for it, as submitit names them: timeout_min=600 slurm_partition=gpu gpus_per_node=1.
        dry_run: Only print the runs.

    Examples:
        remix sweep digits --set method=finetune,remix --seeds 0-4 --jobs 2
        remix sweep cifar100-mini --data ~/data --set settings.inversion.prior.weight=0.1,0.5 --validation
        remix sweep cifar100-10 --seeds 1-5 --jobs 5 --cluster --slurm timeout_min=1440 gpus_per_node=1
    """
    from remix.experiments.sweep_command import sweep_command

    status = sweep_command(
        preset,
        set or (),
        seeds,
        jobs,
        out,
        data,
        validation=validation,
        cluster=cluster,
        slurm=slurm or (),
        dry_run=dry_run,
    )
    if status:
        sys.exit(status)
