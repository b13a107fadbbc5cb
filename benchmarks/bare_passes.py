"""What a run costs above sending its images through the network: python -m benchmarks.bare_passes.

The images that the plan of `cifar100-mini` sends through the network forward and backward (training and inversion;
passes of the old model and of generators are not counted) times what one image takes here, on one thread, beside the
processor minutes of the runs in docs/reproduce/table1.csv. Another machine, or the same on another day, takes another
time for an image: three times in a row gave 2.5 to 2.9 milliseconds, so the ratios are good to some 15 %.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from statistics import fmean

from remix.experiments.config import resolve
from remix.experiments.estimate import seconds_per_image
from remix.experiments.plan import plan_run
from remix.methods import list_methods
from remix.support.files import write_text
from remix.support.machine import keep_freed_memory
from remix.support.text import as_csv, as_markdown

PRESET = "cifar100-mini"


def main() -> None:
    """Measure, compare, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--docs", type=Path, default=Path("docs/reproduce"), help="folder with table1.csv, written to")
    parser.add_argument("--steps", type=int, default=20, help="batches that are timed; the fastest counts")
    typed = parser.parse_args()
    keep_freed_memory()  # as `remix run` does
    with (typed.docs / "table1.csv").open() as file:
        runs = [row for row in csv.DictReader(file) if row["preset"] == PRESET]
    each = seconds_per_image(resolve(PRESET), typed.steps)
    rows = []
    for method in list_methods():
        spent = [float(row["processor_minutes"]) for row in runs if row["method"] == method]
        if not spent:
            continue  # no run of it was made yet
        images = plan_run(resolve(PRESET, method=method), None).work
        bare = images * each / 60
        rows.append(
            {
                "method": method,
                "images": images,
                "bare_minutes": round(bare, 2),
                "processor_minutes": round(fmean(spent), 2),
                "seeds": len(spent),
                "ratio": round(fmean(spent) / bare, 2),
            }
        )
    write_text(typed.docs / "bare_passes.csv", as_csv(rows))
    print(f"{1000 * each:.3f} processor milliseconds an image, forward and backward")
    heads = ["method", "images through the network", "their minutes", "minutes of a run", "seeds", "ratio"]
    cells = [[str(row["method"]), f"{row['images']:,}", *(str(value) for value in [*row.values()][2:])] for row in rows]
    print(as_markdown(heads, cells, left=1))


if __name__ == "__main__":
    main()
