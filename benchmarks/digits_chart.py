"""``python -m benchmarks.digits_chart RUNS``: the chart of the README and its numbers, docs/images/digits_tasks.*.

RUNS is the folder of ``remix sweep digits --set method=finetune,remix,joint,lda --seeds 0-4 --out RUNS``. Without it
the chart is drawn again from the CSV.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
NAMES = {  # colour, and what the line is called at its end
    "joint": ("#52606d", "joint training"),
    "lda": ("#0b8457", "lda (exact head)"),
    "remix": ("#3f51b5", "REMIX"),
    "finetune": ("#d1495b", "fine-tuning"),
}


def rows_of(runs: Path) -> list[dict[str, str]]:
    """Accuracy after each task, the mean over the tasks seen so far, of every run."""
    rows = []
    for file in sorted(runs.glob("*/matrix.csv")):
        method, _, seed = file.parent.name.removeprefix("digits-").rpartition("-seed")
        with file.open(newline="") as lines:
            matrix = [line[1:] for line in csv.reader(lines) if line[0].isdigit()]
        for number, row in enumerate(matrix, start=1):
            mean = np.mean([float(accuracy) for accuracy in row[:number]])
            rows.append({"method": method, "seed": seed, "task": str(number), "accuracy": f"{mean:.2f}"})
    return rows


def curves(rows: list[dict[str, str]]) -> dict[str, np.ndarray]:
    """By method: seeds x tasks."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        found[row["method"]][row["seed"]].append(float(row["accuracy"]))
    return {method: np.array(list(found[method].values())) for method in NAMES}


def draw(found: dict[str, np.ndarray], file: Path) -> None:
    """Mean over seeds with a band of one standard deviation, every line named at its end."""
    plt.rcParams["font.size"] = 11
    figure, axes = plt.subplots(figsize=(8.4, 3.7), facecolor="white")
    for method, accuracies in found.items():
        colour, name = NAMES[method]
        mean, spread = accuracies.mean(0), accuracies.std(0, ddof=1)
        tasks = np.arange(1, len(mean) + 1)
        dashed = "--" if method == "joint" else "-"
        axes.plot(tasks, mean, dashed, color=colour, linewidth=2.4, marker="o", markersize=4.5)
        axes.fill_between(tasks, mean - spread, np.minimum(mean + spread, 100), color=colour, alpha=0.18, linewidth=0)
        place = mean[-1] + {"joint": 3, "lda": -4.5}.get(method, 0)
        axes.text(5.12, place, name, color=colour, va="center", weight="bold")
    axes.set(xlim=(0.8, 5.1), ylim=(0, 104), xticks=range(1, 6), yticks=range(0, 101, 20))
    axes.set_xticklabels([f"{2 * task} classes" for task in range(1, 6)])
    axes.set_title("Accuracy on all digits seen so far, in percent", loc="left", fontsize=12)
    axes.grid(axis="y", color="#e4e7eb")
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(length=0)
    figure.subplots_adjust(left=0.06, right=0.755, top=0.9, bottom=0.1)
    figure.savefig(file, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="?", help="folder of the finished runs")
    runs = parser.parse_args().runs
    numbers = IMAGES / "digits_tasks.csv"
    if runs is not None:
        with numbers.open("w", newline="") as file:
            writer = csv.DictWriter(file, ["method", "seed", "task", "accuracy"], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows_of(runs))
    with numbers.open(newline="") as file:
        found = curves(list(csv.DictReader(file)))
    draw(found, IMAGES / "digits_tasks.png")
    for method, accuracies in found.items():
        last = accuracies[:, -1]
        print(f"{method}: {last.mean():.1f} ± {last.std(ddof=1):.1f} % after the last task, {len(last)} seeds")


if __name__ == "__main__":
    main()
