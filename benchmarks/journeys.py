"""How far a journey through the house is: files in which functions ran, and calls from room to room.

    python -m benchmarks.journeys [TREE ...]      for checkouts of other commits, side by side

Two journeys, small: `remix run digits` with the method remix, and `remix learn` twice. Counted are files of the package
with a function that ran, pairs of files in different rooms of which one called the other, and the networks
and engines that were built. Needs Python 3.11.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUN = (
    "run digits --method remix --out {out} --set data.tasks=2 data.classes=4 'network.options={{width: 4}}' "
    "settings.first.epochs=1 settings.head.epochs=1 settings.last_block.epochs=1 settings.network.epochs=1 "
    "settings.balance.epochs=1 settings.samples=20 settings.samples_per_task=0 settings.selectors.epochs=1 "
    "settings.inversion.block.steps=1 settings.inversion.refine.steps=1"
)
CHILD = r"""
import json, shlex, sys
root, out, words = sys.argv[1:]
files, crossings, built, package = set(), set(), {}, root + "/src/remix/"

def room(file):
    rest = file[len(package):].split("/")
    return rest[0] if len(rest) > 1 else ""

def watch(frame, event, _):
    if event != "call" or not frame.f_code.co_filename.startswith(package):
        return
    code = frame.f_code
    name = code.co_filename[len(package):]
    if code.co_name == "<module>":
        return
    files.add(name)
    kind, _, method = code.co_qualname.partition(".")
    if method == "__init__" and kind in ("ConvNet", "Engine", "Learner"):
        built[kind] = built.get(kind, 0) + 1
    caller = frame.f_back
    while caller is not None and not caller.f_code.co_filename.startswith(package):
        caller = caller.f_back
    if caller is not None and room(caller.f_code.co_filename) != room(code.co_filename):
        crossings.add((caller.f_code.co_filename, name))

import threading
from remix.cli import main
if words:
    sys.setprofile(watch); threading.setprofile(watch)
    try:
        main(shlex.split(words))
    except SystemExit as end:
        assert not end.code, end.code
else:
    import torch, remix
    from remix.data import load
    digits = load("digits").train
    def some(labels):
        rows = torch.cat([(digits.labels == label).nonzero()[:20, 0] for label in labels])
        return digits.images[rows], digits.labels[rows]
    names = [f"digit {i}" for i in range(10)]
    sys.setprofile(watch); threading.setprofile(watch)
    learner = remix.Learner("convnet8", options={"width": 4}, epochs=1)
    learner.learn(some([0, 1]), classes=names)
    learner.learn(some([2]), classes=names)
sys.setprofile(None)
print("FOUND " + json.dumps([len(files), len(crossings), built]))
"""


def measure(tree: Path, words: str) -> tuple[int, int, dict[str, int]]:
    with tempfile.TemporaryDirectory() as out:
        environment = os.environ | {"PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", CHILD, str(tree), out, words.format(out=f"{out}/run")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
    line = next((line for line in done.stdout.splitlines() if line.startswith("FOUND ")), None)
    if line is None:
        raise SystemExit(done.stderr[-3000:])
    files, crossings, built = json.loads(line[6:])
    return files, crossings, built


def main() -> None:
    for tree in [Path(word).resolve() for word in sys.argv[1:]] or [ROOT]:
        print(tree)
        for name, words in {"remix run digits": RUN, "remix learn twice": ""}.items():
            files, crossings, built = measure(tree, words)
            print(f"  {name:18} {files:4} files, {crossings:4} pairs of files in two rooms, built: {built}")


if __name__ == "__main__":
    main()
