"""Tables and a picture of the scale benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def _row(entry: dict[str, Any]) -> str:
    fit, evaluate = entry["fit"], entry["evaluate all rows"]
    share = entry["held-out gain"] / entry["held-out gain of the truth"]
    return (
        f"| {entry['D']:,} | {entry['N']:,} | {entry['bytes of rows'] / 1e9:.2f} | "
        f"{entry['peak bytes of the process'] / 1e9:.2f} | {fit['processor seconds']:.1f} | {fit['seconds']:.1f} | "
        f"{evaluate['processor seconds']:.1f} | {entry['held-out gain']:+.3f} ({100 * share:.0f} %) |"
    )


HEAD = (
    "| D | N | rows, GB | peak of the process, GB | fit, processor s | fit, clock s | evaluate all rows, processor s | "
    "held-out gain over the diagonal, nats / dim (share of the truth's) |\n|---|---|---|---|---|---|---|---|"
)


def markdown(results: dict[str, Any]) -> str:
    """The page docs/bench/scale.md."""
    machine = ", ".join(f"{key}: {value}" for key, value in results["machine"].items())
    lines = [
        "# Fitting up to a million dimensions",
        "",
        f"Made by `{results['command']}` (needs 8 GB of disk and, for the fits, 6 minutes of processor time);",
        f"{machine}. Rows are draws from a known Laplace covariance over a map, in a",
        "float32 file that is memory-mapped; so the gain that could be found is known. Each size runs in a process of",
        "its own; its peak includes Python and torch (about 0.3 GB). Where the machine has other work, compare",
        "processor seconds, not those of the clock.",
        "",
    ]
    if "large" in results:
        lines += ["## More rows than memory", "", HEAD, _row(results["large"]), ""]
        lines += [f"Order: {results['large']['order']}; the likelihood is that of all rows, read in passes.", ""]
    lines += ["## Growth with D", "", HEAD, *map(_row, results["over D"]), ""]
    lines += ["## Growth with N", "", HEAD, *map(_row, results["over N"]), ""]
    lines += ["| processor seconds grow as | exponent |", "|---|---|"]
    for name, value in results["exponents of processor seconds"].items():
        lines.append(f"| {name} | {value:.2f} |")
    lines += ["", "Evaluations of hundredths of a second are noisy, so are their exponents.", ""]
    if "merging" in results:
        merge = results["merging"]
        alone = ", ".join(f"{value:+.3f}" for value in merge["the same for either model alone"])
        gain = merge["gain of the merged model over its diagonal, rows of both"]
        lines += [
            f"## Merging two fitted models of {merge['D']:,} dimensions, exactly",
            "",
            f"One exact inner product of the two covariances (each in its own learned order): "
            f"{merge['one exact inner product']['processor seconds']:.2f} processor seconds. The merge, "
            f"{merge['steps']} steps after the race of the starts: {merge['merge']['processor seconds']:.0f} processor "
            f"seconds, peak of the process {merge['peak bytes of the process'] / 1e9:.2f} GB. Nats per dimension on "
            f"new rows of both sources, over the merged diagonal: merged {gain:+.3f}, either model alone {alone} "
            "(their means differ).",
        ]
    return "\n".join([*lines, "", "![growth](scale.png)", ""])


def picture(results: dict[str, Any], path: Path) -> None:
    """Processor seconds over D and over N."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for axis, over in zip(axes, ("D", "N"), strict=True):
        rows = results[f"over {over}"]
        for work, style in (("fit", "o-"), ("evaluate all rows", "s--")):
            slope = results["exponents of processor seconds"][f"{work} over {over}"]
            values = [row[work]["processor seconds"] for row in rows]
            axis.loglog([row[over] for row in rows], values, style, label=f"{work}: {over}^{slope:.2f}")
        axis.set_xlabel(over)
        axis.set_ylabel("processor seconds")
        axis.grid(alpha=0.3)
        axis.legend()
    figure.savefig(path, dpi=110)
    plt.close(figure)
