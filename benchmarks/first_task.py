"""Curves of a first task: loss and test accuracy epoch by epoch, from a run that was made with --test-every 1."""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from matplotlib.figure import Figure

from remix.experiments.events import Event, read_events
from remix.reproduce.result_files import new_figure, tidy
from remix.support.files import write_text

NAME = "first_task"
LOSS = "cross-entropy"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_task", description=__doc__)
    parser.add_argument("run", type=Path, help="folder of the run")
    parser.add_argument("--out", type=Path, default=Path("docs/reproduce"), help="folder of the picture and the table")
    options = parser.parse_args()
    epochs = [e for e in read_events(options.run / "metrics.jsonl").of("epoch") if e["task"] == 1]
    if not any("accuracy_macro" in event for event in epochs):
        parser.error(f"{options.run} holds no tested epoch: make the run with --test-every 1")
    options.out.mkdir(parents=True, exist_ok=True)
    write_text(options.out / f"{NAME}.csv", table(epochs))
    draw(epochs).savefig(options.out / f"{NAME}.png", dpi=110)
    last = epochs[-1]
    print(f"epoch {last['epoch']} of {last['epochs']}: {LOSS} {last['terms'][LOSS]:.3f}", end="")
    print(f", accuracy {last.get('accuracy_macro', float('nan')):.1f} %")


def table(epochs: Sequence[Event]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["epoch", "rate", LOSS, "test_accuracy"])
    for event in epochs:
        accuracy = event.get("accuracy_macro", "")
        writer.writerow([event["epoch"], f"{event['rate']:g}", f"{event['terms'][LOSS]:.4f}", accuracy])
    return text.getvalue()


def draw(epochs: Sequence[Event]) -> Figure:
    """Loss on the left, accuracy on the right; dotted where the rate falls."""
    figure = new_figure(9, 3.4)
    loss, accuracy = figure.subplots(1, 2)
    loss.semilogy([e["epoch"] for e in epochs], [e["terms"][LOSS] for e in epochs], lw=1.6)
    tested = [e for e in epochs if "accuracy_macro" in e]
    accuracy.plot([e["epoch"] for e in tested], [e["accuracy_macro"] for e in tested], lw=1.6)
    falls = [e["epoch"] - 0.5 for before, e in pairwise(epochs) if e["rate"] < before["rate"]]
    for panel in (loss, accuracy):
        for at in falls:
            panel.axvline(at, color="grey", ls=":", lw=1)
    tidy(loss, "loss on training images", "epoch", LOSS)
    tidy(accuracy, "accuracy on test images", "epoch", "%")
    return figure


if __name__ == "__main__":
    main()
