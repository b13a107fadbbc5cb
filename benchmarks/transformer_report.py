"""The page of `benchmarks.transformer`."""

from __future__ import annotations

from typing import Any

from benchmarks.inversion_report import verdict


def markdown(results: dict[str, Any]) -> str:
    """The page docs/bench/transformer.md."""
    machine = ", ".join(f"{key}: {value}" for key, value in results["machine"].items())
    step, held, limits = results["step"], results["held"], results["limits"]
    ratio = step["step"] / step["bare"]
    rows = [
        [
            f"refinement step over bare passes, {results['images']} images, one thread",
            f"{step['step']:.2f} s / {step['bare']:.2f} s = {ratio:.2f}",
            _goal(ratio, limits["step"], "{:g}"),
        ],
        *(
            [
                f"peak of the process, {results['batch']} images, micro-batch {one['micro-batch']}",
                f"{one['bytes'] / 1e9:.2f} GB",
                _goal(one["bytes"] / 1e9, limits["peak"], "{:g} GB"),
            ]
            for one in results["peaks"]
        ),
        [
            "parameters of teacher and student with MoE adapters over the network's",
            f"{held['teacher and student / network']:.3f}",
            _goal(held["teacher and student / network"], limits["held"], "{:g}"),
        ],
        [
            "parameters in a checkpoint over the network's",
            f"{held['checkpoint / network']:.3f}",
            _goal(held["checkpoint / network"], limits["saved"], "{:g}"),
        ],
    ]
    lines = [
        "# Inverting a ViT-B/16",
        "",
        f"Made by `{results['command']}` (needs minutes); {machine}. Random weights, images of 224 pixels, float32. A "
        f"step of the real loop: feature match, statistics and Laplace terms at {results['places']} places, Adam. "
        "Bare: the frozen network forward to its pooled features and back to its input. In micro-batches a step runs "
        "it forward once more, about a third of the bare passes on top.",
        "",
        "| what | measured | goal |",
        "|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in rows),
        "",
    ]
    return "\n".join(lines)


def _goal(value: float, limit: float, form: str) -> str:
    return f"at most {form.format(limit)}: {verdict(value <= limit)}"
