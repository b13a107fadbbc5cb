"""The page and the picture of `benchmarks.inversion`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.inversion import LAYERWISE_GAIN, REPLACED, STEP_LIMIT


def verdict(reached: bool) -> str:
    return "reached" if reached else "missed"


def markdown(results: dict[str, Any]) -> str:
    """The page docs/bench/inversion.md."""
    machine = ", ".join(f"{key}: {value}" for key, value in results["machine"].items())
    lines = [
        "# Speed and memory of `remix.inversion`",
        "",
        f"Made by `{results['command']}` (needs some minutes on a machine without other work); {machine}. "
        "ResNet-32 of width 16, images of 32 x 32 pixels, float32. Works "
        "take turns in one process and the best time of each is kept. With one thread it is the time of this process "
        "alone, with more it is that of the clock on the wall.",
        "",
        f"## One refinement step, batch {results['batch']}",
        "",
        "A step of the real loop: feature match, 31 statistics terms and 31 Laplace terms, Adam, the best point kept. "
        "Bare: the same frozen network in the same memory format, forward to its pooled features and "
        "`torch.autograd.grad` back to its input. Straightforward: the same step with hooks and plain autograd "
        "(`benchmarks/inversion_baseline.py`).",
        "",
        "| threads | memory format | bare, ms | step, ms | step / bare | target | straightforward / bare |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in results["refinement steps"]:
        ratio = row["step"] / row["bare"]
        target = f"at most {STEP_LIMIT:g}: {verdict(ratio <= STEP_LIMIT)}"
        plain = f"{row['straightforward'] / row['bare']:.2f}" if "straightforward" in row else ""
        lines.append(
            f"| {row['threads']} | {row['format']} | {1e3 * row['bare']:.0f} | {1e3 * row['step']:.0f} | {ratio:.2f} "
            f"| {target} | {plain} |"
        )
    first = results["refinement steps"][0]
    lines += [
        "",
        f"Where a step's time goes ({first['threads']} threads, contiguous; each part measured alone). The frozen "
        "BatchNorm layers run in the passes that measure their inputs:",
        "",
        "| part | ms | of bare |",
        "|---|---|---|",
        f"| network, forward and backward | {1e3 * first['bare']:.1f} | 1.000 |",
    ]
    rest = first["step"] - first["bare"]
    for name, value in results["breakdown"].items():
        part = -value if name == REPLACED else value
        rest -= part
        name = f"less: {name}" if name == REPLACED else name
        lines.append(f"| {name} | {1e3 * part:.1f} | {part / first['bare']:.3f} |")
    lines.append(
        f"| everything else, and what the parts cost only alone | {1e3 * rest:.1f} | {rest / first['bare']:.3f} |"
    )
    run = results["layer-wise"]
    ours, plain = run["seconds"]["remix"], run["seconds"]["straightforward"]
    steps = plain - run["seconds"]["of it, runs for shapes"]
    gain, step_gain = plain / ours, steps / ours
    lines += [
        "",
        f"## Layer-wise inversion of {run['images']} images",
        "",
        f"{run['steps per block']} step for each of the 16 blocks, then {run['refinement steps']} of the whole "
        "network, the same for both. The straightforward form has hooks on all 31 BatchNorm layers which compute both "
        "terms by autograd, copies the unknowns in every step, runs the whole network on the full batch to learn the "
        "shape of each block's input, and uses torch's default Adam. It is spared the gradients of parameters. With "
        "the published 50 steps per block its runs for shapes count for little, so the last line is the one to go by.",
        "",
        "| | seconds |",
        "|---|---|",
        f"| remix | {ours:.2f} |",
        f"| straightforward | {plain:.2f} |",
        f"| straightforward without its runs for shapes | {steps:.2f} |",
        f"| straightforward / remix | {gain:.2f} (at least {LAYERWISE_GAIN:g}: {verdict(gain >= LAYERWISE_GAIN)}) |",
        f"| the same without the runs for shapes | {step_gain:.2f} (at least {LAYERWISE_GAIN:g}: "
        f"{verdict(step_gain >= LAYERWISE_GAIN)}) |",
        "",
        f"## Peak memory of one refinement step, batch {results['memory']['images']}",
        "",
        "Beyond what was resident before, in a fresh process each. The result is the same for every micro-batch.",
        "",
        "| micro-batch | MiB |",
        "|---|---|",
    ]
    for row in results["memory"]["micro-batch"]:
        lines.append(f"| {row['size']} | {mebibytes(row['bytes'])} |")
    lines += [f"| straightforward, whole batch | {mebibytes(results['memory']['straightforward'])} |", ""]
    lines += ["![parts of a step, and memory](inversion.png)", ""]
    return "\n".join(lines)


def mebibytes(count: int | None) -> str:
    return "unknown" if count is None else f"{count / 2**20:.0f}"


def picture(results: dict[str, Any], path: Path) -> None:
    """Step times in units of the bare passes, and memory over the micro-batch."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4), layout="constrained")
    rows = results["refinement steps"]
    names = [f"{row['threads']} threads, {row['format']}" for row in rows]
    left.barh(names, [row["step"] / row["bare"] for row in rows], color="#2a6f97", label="step")
    plain = [
        (name, row["straightforward"] / row["bare"])
        for name, row in zip(names, rows, strict=True)
        if "straightforward" in row
    ]
    left.plot([value for _, value in plain], [name for name, _ in plain], "s", color="#888888", label="straightforward")
    left.axvline(1, color="#444444", lw=1, label="bare network")
    left.axvline(STEP_LIMIT, color="#c1121f", lw=2, label="must not exceed")
    left.invert_yaxis()
    left.set_xlabel("one refinement step, in bare forward + backward passes")
    left.legend()
    memory = [row for row in results["memory"]["micro-batch"] if row["bytes"] is not None]
    right.plot([row["size"] for row in memory], [row["bytes"] / 2**20 for row in memory], "o-", color="#2a6f97")
    right.set_xlabel(f"micro-batch (of {results['memory']['images']} images)")
    right.set_ylabel("peak extra memory, MiB")
    right.set_ylim(0)
    right.grid(alpha=0.3)
    figure.savefig(path, dpi=130)
    plt.close(figure)
