"""Whether two commits give the same results to the last bit, on this machine: for changes that should change nothing.

    python -m benchmarks.same_bits BASE                all methods on the digits, small, and steps of `remix learn`
    python -m benchmarks.same_bits BASE --digits       the preset as it is, and a run that is killed
    python -m benchmarks.same_bits BASE --cifar DATA   cifar100-mini and -improved up to the second task

Every journey is made by the `remix` command of each commit, one thread each, both commits side by side. Compared are
``matrix.csv`` and every tensor of ``model.remix``. Results of a commit are kept in ``--work`` and not made again.
Processors differ in their rounding, so nothing of this can be committed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from safetensors import safe_open

ROOT = Path(__file__).resolve().parent.parent
KERNELS = "src/remix/laplace/native"
METHODS = ("finetune", "joint", "lwf", "deepinversion", "abd", "rdfcil", "pmi", "remix")
INVERTED = (
    "first.epochs=2 head.epochs=1 last_block.epochs=1 network.epochs=2 balance.epochs=2 samples=30 samples_per_task=20 "
    "selectors.epochs=2 inversion.block.steps=4 inversion.refine.steps=8 inversion.batch=40"
)
GENERATED = "first.epochs=2 later.epochs=2 generator.schedule.steps=8 generator.batch=16 generator.noise=8"
SMALL = {
    "finetune": "first.epochs=2 later.epochs=2",
    "joint": "training.epochs=2",
    "lwf": "first.epochs=2 later.epochs=2",
    "deepinversion": GENERATED,
    "abd": GENERATED,
    "rdfcil": f"{GENERATED} balance.epochs=2",
    "pmi": INVERTED,
    "remix": INVERTED,
}


class Commit:
    """A checkout of a commit, and the command of its own."""

    def __init__(self, revision: str, work: Path) -> None:
        self.name = _git("rev-parse", "--short=12", f"{revision}^{{commit}}")
        self.tree, self.results = work / "trees" / self.name, work / "results" / self.name
        if not self.tree.is_dir():
            _git("worktree", "prune")
            _git("worktree", "add", "--detach", "--force", str(self.tree), self.name)
            self._add_kernels()
        self.results.mkdir(parents=True, exist_ok=True)
        self.environment = os.environ | {"PYTHONPATH": str(self.tree / "src"), "OMP_NUM_THREADS": "1"}

    def _add_kernels(self) -> None:
        """The library that is built here if its source is the same, or else one of its own."""
        if not _git("diff", "--name-only", self.name, "--", KERNELS, "setup.py"):
            for file in (ROOT / KERNELS).parent.glob("_native*"):
                shutil.copy(file, (self.tree / KERNELS).parent)
        else:
            subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=self.tree, check=True)

    def start(self, *words: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", "from remix.cli import main; main()", *map(str, words)]  # in every version
        return subprocess.Popen(
            command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def remix(self, *words: object) -> None:
        process = self.start(*words)
        said, _ = process.communicate()
        if process.returncode:
            raise SystemExit(f"{self.name}: remix {' '.join(map(str, words))} failed:\n{said}")


# --- journeys: each leaves a folder with model.remix and, of a run, matrix.csv ---


def small_run(method: str) -> Callable[[Commit, Path], None]:
    common = ("data.tasks=3", "data.classes=3", "data.validation=0.8", "network.options={width: 4}", "batch_size=32")
    settings = [*common, *(f"settings.{text}" for text in SMALL[method].split())]
    return lambda commit, out: commit.remix(
        "run", "digits", "--method", method, "--seed", 0, "--out", out, "--set", *settings
    )


def digits_run(method: str) -> Callable[[Commit, Path], None]:
    return lambda commit, out: commit.remix("run", "digits", "--method", method, "--seed", 0, "--out", out)


def killed_run(commit: Commit, out: Path) -> None:
    """Killed when the first checkpoint is there, and gone on with."""
    process = commit.start("run", "digits", "--method", "remix", "--seed", 0, "--out", out)
    while process.poll() is None and not list((out / "checkpoints").glob("state*")):
        time.sleep(0.05)
    process.kill()
    process.communicate()
    commit.remix("run", "digits", "--method", "remix", "--seed", 0, "--out", out, "--resume")


def learn_steps(commit: Commit, out: Path, *first: object) -> None:
    """Three steps from folders: the first classes, more of them, then images of known and of new ones."""
    quick = ("--epochs", 4, "--seed", 0)
    for name, labels in {"first": (0, 1, 2), "more": (3, 4), "again": (3, 4, 5)}.items():
        _write_digits(out / name, labels, 60 if name == "again" else 0)
    commit.remix("learn", out / "first", "--backbone", "convnet8", *first, *quick, "--out", out / "1.remix")
    commit.remix("learn", out / "1.remix", out / "more", *quick, "--out", out / "2.remix")
    commit.remix("learn", out / "2.remix", out / "again", "--extend", *quick, "--out", out / "model.remix")


def frozen_learn_steps(commit: Commit, out: Path) -> None:
    """The same with blocks that never change."""
    learn_steps(commit, out, "--freeze", 2)


def cifar_run(preset: str, method: str, data: Path) -> Callable[[Commit, Path], None]:
    def run(commit: Commit, out: Path) -> None:
        commit.environment["REMIX_DATA"] = str(data)
        commit.remix(
            "run", preset, "--method", method, "--seed", 0, "--out", out, "--set", "data.tasks=2", "data.classes=8"
        )

    return run


def _write_digits(folder: Path, labels: tuple[int, ...], start: int) -> None:
    from PIL import Image
    from sklearn.datasets import load_digits

    digits = load_digits()
    for label in labels:
        (folder / f"digit {label}").mkdir(parents=True, exist_ok=True)
        rows = (digits.target == label).nonzero()[0][start : start + 60]
        for row in rows:
            pixels = (digits.images[row] * 15).astype("uint8")
            Image.fromarray(pixels).save(folder / f"digit {label}" / f"{row}.png")


# --- comparing ---


def make(commit: Commit, name: str, journey: Callable[[Commit, Path], None]) -> Path:
    """The folder of a journey's results, made unless it was finished before."""
    out = commit.results / name
    if not (out / "finished").is_file():
        shutil.rmtree(out, ignore_errors=True)
        journey(commit, out)
        (out / "finished").touch()
    return out


def differences(one: Path, other: Path) -> list[str]:
    found = []
    matrices = [(out / "matrix.csv").read_bytes() if (out / "matrix.csv").is_file() else None for out in (one, other)]
    if matrices[0] != matrices[1]:
        found.append("matrix.csv")
    with safe_open(one / "model.remix", "pt") as mine, safe_open(other / "model.remix", "pt") as theirs:
        names = [set(file.keys()) for file in (mine, theirs)]
        found += [f"only one has {name}" for name in sorted(names[0] ^ names[1])]
        for name in sorted(names[0] & names[1]):
            first, second = mine.get_tensor(name), theirs.get_tensor(name)
            if first.dtype != second.dtype or first.shape != second.shape:
                found.append(f"{name}: {first.dtype} {tuple(first.shape)} and {second.dtype} {tuple(second.shape)}")
            elif first.numpy().tobytes() != second.numpy().tobytes():
                largest = float((first.double() - second.double()).abs().max())
                found.append(f"{name} by up to {largest:.2g}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", help="commit to compare with")
    parser.add_argument("head", nargs="?", default="HEAD", help="commit to compare, HEAD by default")
    parser.add_argument("--digits", action="store_true", help="the preset digits as it is, and a run that is killed")
    parser.add_argument("--cifar", type=Path, metavar="DATA", help="folder with CIFAR-100: also cifar100-mini")
    parser.add_argument("--work", type=Path, default=Path("/tmp/same-bits"), help="folder of checkouts and results")
    given = parser.parse_args()
    journeys = {f"small-{method}": small_run(method) for method in METHODS} | {"learn": learn_steps}
    journeys["learn-frozen"] = frozen_learn_steps
    if given.digits:
        journeys |= {f"digits-{method}": digits_run(method) for method in METHODS} | {"digits-killed": killed_run}
    if given.cifar:
        for preset in ("cifar100-mini", "cifar100-mini-improved"):
            journeys[preset] = cifar_run(preset, "remix", given.cifar)
    commits = [Commit(revision, given.work) for revision in (given.base, given.head)]
    print(f"{commits[0].name} against {commits[1].name}")
    failed = 0
    with ThreadPoolExecutor(2) as pool:
        for name, journey in journeys.items():
            began = time.monotonic()
            one, other = pool.map(lambda commit: make(commit, name, journey), commits)  # noqa: B023 (used at once)
            found = differences(one, other)
            failed += bool(found)
            shown = "; ".join(found[:3]) + (f"; and {len(found) - 3} more" if len(found) > 3 else "")
            print(f"{name:24} {shown or 'the same':60} {time.monotonic() - began:5.0f} s", flush=True)
    sys.exit(f"{failed} of {len(journeys)} differ" if failed else 0)


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
