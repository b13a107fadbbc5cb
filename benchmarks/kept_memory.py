"""What a step of training costs when the process keeps freed memory, against giving it back to the system.

Both in processes of their own, in turn, on one thread; the ratio is of processor seconds.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from torch import nn

from remix.inversion import ImageGenerator
from remix.networks import create_backbone
from remix.support.machine import keep_freed_memory

ROUNDS, STEPS = 5, 6


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kept_memory", description=__doc__)
    parser.add_argument("--one", choices=("return", "keep"), help="only this process, as numbers on standard output")
    options = parser.parse_args()
    if options.one:
        print(*one_process(options.one == "keep"))
        return
    found: dict[str, list[list[float]]] = {"return": [], "keep": []}
    for _ in range(ROUNDS):
        for word, results in found.items():
            command = [sys.executable, "-m", "benchmarks.kept_memory", "--one", word]
            text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            results.append([float(number) for number in text.split()])
    for place, name in enumerate(("ResNet-32 of width 8, 256 images", "generator and network, 128 images")):
        before, after = ([row[place] for row in found[word]] for word in ("return", "keep"))
        ratio = statistics.median(b / a for b, a in zip(before, after, strict=True))
        print(f"{name}: {statistics.median(before):.2f} s -> {statistics.median(after):.2f} s a step, {ratio:.2f} x")
    most, least = (statistics.median(row[2] for row in found[word]) for word in ("keep", "return"))
    print(f"peak of memory: {least:.0f} -> {most:.0f} MiB")


def one_process(keep: bool) -> tuple[float, float, float]:
    """Processor seconds of both kinds of steps, and the peak of memory in MiB."""
    torch.set_num_threads(1)
    if keep:
        keep_freed_memory()
    backbone = create_backbone("resnet32", width=8)
    head = nn.Linear(backbone.feature_dim, 8)
    generator = ImageGenerator((3, 32, 32), 1000, torch.Generator().manual_seed(0))
    images, labels, noise = torch.randn(256, 3, 32, 32), torch.randint(8, (256,)), torch.randn(128, 1000)

    def train() -> None:
        nn.functional.cross_entropy(head(backbone.pooled(images)), labels).backward()

    def generate() -> None:
        backbone.pooled(generator(noise)).square().mean().backward()

    seconds = timed(train), timed(generate)
    return *seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def timed(step: Callable[[], None]) -> float:
    step()
    begin = time.process_time()
    for _ in range(STEPS):
        step()
    return (time.process_time() - begin) / STEPS


if __name__ == "__main__":
    main()
