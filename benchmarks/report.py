"""Tables and a picture from the measured numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.speed import TARGETS


def operation_rows(result: dict[str, Any]) -> list[tuple[str, float, float, str]]:
    """(work, milliseconds, copies, verdict)."""
    seconds = result["seconds"]
    rows = []
    for name, value in seconds.items():
        copies = value / seconds["copy"]
        verdict = ""
        if name in TARGETS:
            must, aim = TARGETS[name]
            verdict = "aim reached" if copies <= aim else "reached" if copies <= must else "missed"
            verdict += f" (must {must:g}, aim {aim:g})"
        rows.append((name, 1e3 * value, copies, verdict))
    return rows


def markdown(results: dict[str, Any]) -> str:
    """The page docs/bench/speed.md."""
    machine = ", ".join(f"{key}: {value}" for key, value in results["machine"].items())
    lines = [
        "# Speed and memory of `remix.laplace`",
        "",
        f"Made by `{results['command']}` (needs the packages of `.[bench]` and a machine without other work);",
        f"{machine}. Works are interleaved in one process, the best time of each is",
        "kept, and the unit is one `out.copy_(x)` into memory that is already mapped (the strictest unit: a `clone`",
        "pays for fresh pages; our large results reuse blocks of earlier ones). float32, random order of coordinates.",
        "",
    ]
    for key in ("operations", "operations at D = 10^6"):
        part = results[key]
        lines += [
            f"## B = {part['B']}, D = {part['D']:,}",
            "",
            "| work | ms | copies of x | target |",
            "|---|---|---|---|",
        ]
        targets = key == "operations"
        for name, ms, copies, verdict in operation_rows(part):
            lines.append(f"| {name} | {ms:.2f} | {copies:.2f} | {verdict if targets else ''} |")
        seconds = part["seconds"]
        ratio = seconds["celerite2: value + gradient in x"] / seconds["NLL value + gradient in x"]
        lines += [
            "",
            f"Value + gradient is {ratio:.1f} x faster than celerite2 (float64, sorted, transposed input).",
            "",
        ]
    lines += ["## One row", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {1e3 * value:.3f} ms |" for name, value in results["single row"].items()]
    lines += [
        "",
        "## Peak extra memory of value + gradient, results included",
        "",
        "| B | D | sizes of x |",
        "|---|---|---|",
    ]
    for row in results["memory of value + gradient"]:
        size = row["sizes of x"]
        lines.append(f"| {row['B']} | {row['D']:,} | {'unknown' if size is None else f'{size:.2f}'} |")
    for key in ("dense MultivariateNormal", "pyro GaussianHMM"):
        lines += [
            "",
            f"## Against {key}",
            "",
            "| D | B | ours, ms | theirs, ms | theirs / ours |",
            "|---|---|---|---|---|",
        ]
        for row in results[key]:
            lines.append(
                f"| {row['D']:,} | {row['B']} | {1e3 * row['remix']:.2f} | {1e3 * row['peer']:.2f} "
                f"| {row['peer / remix']:.1f} |"
            )
    growth = results["growth"]
    lines += [
        "",
        "## Growth",
        "",
        f"Time grows as D^{growth['exponent in D']:.2f} (B = {growth['B']}) and as B^{growth['exponent in B']:.2f} "
        f"(D = {growth['D']:,}).",
        "",
        "![growth and copies](speed.png)",
        "",
    ]
    return "\n".join(lines)


def picture(results: dict[str, Any], path: Path) -> None:
    """Copies per operation, and time over D against the peers."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.5), layout="constrained")
    rows = [row for row in operation_rows(results["operations"]) if row[0] in TARGETS and "torch" not in row[0]]
    rows += [row for row in operation_rows(results["operations"]) if row[0] == "celerite2: value + gradient in x"]
    names = [row[0] for row in rows]
    left.barh(names, [row[2] for row in rows], color=["#2a6f97"] * (len(rows) - 1) + ["#bbbbbb"])
    for index, name in enumerate(names):
        if name in TARGETS:
            left.plot([TARGETS[name][0]] * 2, [index - 0.4, index + 0.4], color="#c1121f", lw=2)
    left.invert_yaxis()
    left.set_xlabel("copies of x (red: must not exceed)")
    left.set_title(f"B = {results['operations']['B']}, D = {results['operations']['D']:,}")
    over = results["growth"]["seconds over D"]
    right.loglog([int(size) for size in over], list(over.values()), "o-", label="remix", color="#2a6f97")
    for key, style in (("dense MultivariateNormal", "s--"), ("pyro GaussianHMM", "^--")):
        table = results[key]
        right.loglog([row["D"] for row in table], [row["peer"] for row in table], style, label=key)
    right.set_xlabel("D")
    right.set_ylabel("seconds, value + gradient, B = 50")
    right.legend()
    right.grid(alpha=0.3)
    figure.savefig(path, dpi=130)
    plt.close(figure)
