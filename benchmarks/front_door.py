"""Five things that a newcomer does, as they were typed before the front door was built and as they are typed now.

    python -m benchmarks.front_door BEFORE --data DIR     BEFORE: a checkout of the commit before it, DIR/imagenette

Counts what is typed (commands, lines of Python) and what is printed, and takes the processor's and the clock's seconds
in both trees, with the packages that are installed here. Writes docs/bench/journeys.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from remix.support.files import write_text

ROOT = Path(__file__).resolve().parent.parent
METHOD = '''\
from dataclasses import dataclass
from torch.nn.functional import cross_entropy
from remix.learning import Method, Stage, Training, Work
from remix.methods import first_task, method

@method("head-only")
@dataclass(frozen=True)
class HeadOnly(Method):
    """Freeze the backbone after the first task and train the newest classifier."""
    later: Training = Training(10, 0.05)

    def stages(self, step):
        return first_task(Training(20, 0.1)) if step == "first" else [Stage("head", self.later, self.newest)]

    def newest(self, engine):
        head = engine.student.head
        return Work([head.newest()], lambda b: {"ce": cross_entropy(head(engine.pooled(b.real)), b.labels)})
'''
NETWORK = """\
import torch, remix
from torch import nn

def trained():  # stands for a network of one's own
    below = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
    above = nn.Sequential(nn.Conv2d(8, 16, 3, stride=2), nn.BatchNorm2d(16), nn.ReLU())
    return nn.Sequential(below, above, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 2))

parts = {"blocks": ["0", "1"], "input_shape": (3, 16, 16)}
data = torch.rand(20, 3, 16, 16), torch.arange(20) % 2
new = torch.rand(10, 3, 16, 16), torch.zeros(10, dtype=torch.int64)
"""
REGISTERED = """\
@remix.networks.register_backbone("mine")
def mine():
    return remix.networks.as_backbone(trained(), **parts)

"""
SWEEP = "REMIX_IMPORT=mine.py remix sweep digits --set method=finetune,head-only --seeds 0-2 --jobs 2"
OWN = "remix run cifar100-mini --dry-run --set data.name=photos"
SIZES = "data.order=natural data.options.size=64 data.tasks=5 data.classes=null"
# What is typed in each journey, in order: a pair is a file that is written, the rest are commands.
JOURNEYS: dict[str, dict[str, list[str | tuple[str, str]]]] = {
    "the demo": {"before": ["make demo"], "after": ["make demo"]},
    "a method of one's own against fine-tuning, three seeds, with a page": {
        "before": [("mine.py", METHOD), SWEEP, "remix report runs --out page.html"],
        "after": [("mine.py", METHOD), SWEEP, "remix report runs --out page.html"],
    },
    "a folder of photographs in five tasks, until a run of remix is accepted": {
        "before": [
            "remix run photos --dry-run",
            OWN,
            f"{OWN} data.order=natural",
            f"{OWN} {SIZES}",
            f"{OWN} {SIZES} 'network.options={{width: 8, input_shape: [3, 64, 64], stem_stride: 2}}'",
        ],
        "after": ["remix run photos --tasks 5 --dry-run"],
    },
    "a network of one's own adopted, extended by a class, exported": {
        "before": [
            ("mine.py", f"import remix.networks\n{NETWORK}\n{REGISTERED}"),
            (
                "adopt.py",
                "import remix\nfrom mine import data, new, parts, trained\n\n"
                'learner = remix.Learner.adopt(trained(), data, classes=["cat", "dog"], backbone="mine", **parts)\n'
                'learner.learn(new, classes=["emu"])\nlearner.save("animals.remix")\n',
            ),
            "python adopt.py",
            "REMIX_IMPORT=mine.py remix export animals.remix --format onnx --out animals.onnx",
        ],
        "after": [
            (
                "mine.py",
                f"{NETWORK}\n"
                'learner = remix.Learner.adopt(trained(), data, classes=["cat", "dog"], **parts)\n'
                'learner.learn(new, classes=["emu"])\nlearner.export("animals.onnx")\n',
            ),
            "python mine.py",
        ],
    },
    "a Gaussian fitted, trained, saved, read again": {
        "before": [
            (
                "gaussian.py",
                "import torch\nfrom torch.nn.functional import softplus\n"
                "from remix.laplace import LaplaceCovariance, LaplaceNormal, fit\n\n"
                "rows = torch.randn(400, 64).cumsum(1)\np = fit(rows[:100])\nc = p.covariance\n"
                "raw = [v.clone().requires_grad_() for v in (p.mean, c.diag.expm1().log(), c.weight, c.coord)]\n\n"
                "def normal():\n    mean, diag, weight, coord = raw\n"
                "    return LaplaceNormal(mean, LaplaceCovariance(softplus(diag), weight, coord))\n\n"
                "optimiser = torch.optim.Adam(raw, lr=0.01)\nfor _ in range(50):\n    optimiser.zero_grad()\n"
                "    (-normal().log_prob(rows).mean()).backward()\n    optimiser.step()\n"
                'torch.save([v.detach() for v in raw], "p.pt")\n'
                'raw = torch.load("p.pt", weights_only=True)\nprint(normal().log_prob(rows).mean())\n',
            ),
            "python gaussian.py",
        ],
        "after": [
            (
                "gaussian.py",
                "import torch\nfrom safetensors.torch import load_file, save_file\n"
                "from remix.laplace import LaplaceNormal, LearnableNormal, fit\n\n"
                "rows = torch.randn(400, 64).cumsum(1)\nmodel = LearnableNormal(fit(rows[:100]))\n"
                "optimiser = torch.optim.Adam(model.parameters(), lr=0.01)\nfor _ in range(50):\n"
                "    optimiser.zero_grad()\n    (-model().log_prob(rows).mean()).backward()\n    optimiser.step()\n"
                'save_file(model.normal().state_dict(), "p.safetensors")\n'
                'again = LaplaceNormal.from_state_dict(load_file("p.safetensors"))\n'
                "print(again.log_prob(rows).mean())\n",
            ),
            "python gaussian.py",
        ],
    },
}


def programs(tree: Path, folder: Path) -> Path:
    """A virtual environment, as far as make and the shell look into one, whose remix is that of a tree."""
    (folder / "bin").mkdir(parents=True)
    start = "import sys; sys.argv[0] = 'remix'; from remix.cli import main; main()"
    for name, words in {"remix": f'-c "{start}" "$@"', "python": '"$@"'}.items():
        file = folder / "bin" / name
        file.write_text(f"#!/bin/sh\nPYTHONPATH={tree}/src exec {sys.executable} {words}\n")
        file.chmod(0o755)
    for stamp in (".installed", ".native"):
        (folder / stamp).touch()
    return folder


def photographs(data: Path, folder: Path) -> None:
    """Ten classes of Imagenette, 24 photographs each."""
    for kind in sorted((data / "imagenette" / "train").iterdir()):
        (folder / kind.name).mkdir(parents=True)
        for photo in sorted(kind.iterdir())[:24]:
            shutil.copy(photo, folder / kind.name)


def walk(tree: Path, typed: list[str | tuple[str, str]], data: Path) -> dict[str, float]:
    """One journey in an empty folder: what was typed, what was printed, and the time."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        venv = programs(tree, place / "venv")
        work = place / "work"
        photographs(data, work / "photos")
        environment = os.environ | {"PATH": f"{venv}/bin:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
        before, clock = os.times(), time.perf_counter()
        found = {"commands": 0, "refused": 0, "python": 0, "printed": 0}
        for step in typed:
            if isinstance(step, tuple):
                (work / step[0]).write_text(step[1])
                found["python"] += sum(bool(line.strip()) for line in step[1].splitlines())
                continue
            command, where = step, work
            if step == "make demo":
                shutil.rmtree(tree / "demo-output", ignore_errors=True)
                command, where = f"make -s demo VENV={venv}", tree
            done = subprocess.run(
                ["sh", "-c", command],
                cwd=where,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            found["commands"] += 1
            found["refused"] += done.returncode != 0
            found["printed"] += len(done.stdout.splitlines())
        if done.returncode:
            raise SystemExit(done.stdout[-3000:])
        after = os.times()
        used = after.children_user + after.children_system - before.children_user - before.children_system
        return found | {"processor": used, "clock": time.perf_counter() - clock}


def page(found: dict[str, dict[str, dict[str, float]]], commit: str) -> str:
    """The table, and what was typed."""
    lines = [
        "# Journeys of a newcomer, before and after the front door",
        "",
        f"Five things, each typed in an empty folder: before (commit {commit}) and now. Made by",
        "`python -m benchmarks.front_door BEFORE --data DIR` (needs Imagenette and a checkout of that commit), one run",
        "each with one thread, on a machine that others used too: the processor's seconds compare better than the",
        "clock's. Packages were installed already. *Refused* commands ended with an error. A progress",
        "line that is drawn over in a terminal counts as often as a log has it.",
        "For photographs, the commands before are those that one comes to by following each error. A missing row",
        "was not measured.",
        "",
        "| journey | | commands (refused) | lines of Python | lines printed | processor, s | clock, s |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in JOURNEYS:
        for row, (when, n) in enumerate(sorted(found.get(name, {}).items(), reverse=True)):
            refused = f" ({n['refused']})" if n["refused"] else ""
            lines.append(
                f"| {'' if row else name} | {when} | {n['commands']}{refused} | {n['python'] or ''} | "
                f"{n['printed']} | {n['processor']:.0f} | {n['clock']:.0f} |"
            )
    for name, ways in JOURNEYS.items():
        lines += ["", f"## {name[0].upper()}{name[1:]}"]
        for when, typed in ways.items():
            lines += ["", f"{when.capitalize()}:", "", "```text"]
            for number, step in enumerate(typed, start=1):
                lines += [f"{number}. {step}"] if isinstance(step, str) else [f"{number}. the file {step[0]}:", step[1]]
            lines += ["```"]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="a checkout of the commit before")
    parser.add_argument("--data", type=Path, required=True, help="the folder that has imagenette/")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "bench" / "journeys.md")
    given = parser.parse_args()
    trees = {"before": given.before.resolve(), "after": ROOT}
    store = given.out.with_suffix(".json")
    found = json.loads(store.read_text()) if store.is_file() else {}
    commit = subprocess.run(["git", "-C", given.before, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    for name, ways in JOURNEYS.items():
        for when, typed in ways.items():
            if when not in found.setdefault(name, {}):
                found[name][when] = walk(trees[when], typed, given.data)
                print(name, when, found[name][when], flush=True)
                write_text(store, json.dumps(found, indent=1) + "\n")
                write_text(given.out, page(found, commit.stdout.strip()))


if __name__ == "__main__":
    main()
