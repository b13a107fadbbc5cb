"""Which prior gives the best dreams of a CIFAR network? A second network, trained apart from it, is the judge.

    python -m benchmarks.dream_quality --data DIR --cache DIR --out docs/dreams

DIR holds cifar-100-binary/. What was trained, dreamed or scored before is read from the cache, so the command can be
stopped and started again at any time; tables and pictures are written after every seed.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.dream_data import CIFAR_NAMES, read_cifar
from benchmarks.dream_grids import grid
from benchmarks.dream_networks import PlainJudge, dreamer, judge
from benchmarks.dream_plan import Known, Plan, Strategy, dream, measure, plans, settings_of
from benchmarks.dream_scores import Reference, likelihood, score
from benchmarks.features import CIFAR_MEAN, CIFAR_STD

TUNING_SEED, TUNING_COUNT = 100, 40
GRIDS = {"typical": (2.0, 16.0), "nll": (0.5, 8.0)}
METRICS = ("accuracy", "cross_entropy", "frechet", "diversity", "quadratic")


class Benchmark:
    """The networks, the images, and what is known of them."""

    def __init__(self, data: Path, cache: Path) -> None:
        self.cache = cache
        self.train, self.test = read_cifar(data, "train"), read_cifar(data, "test")
        self.classifier = dreamer(cache, self.train, width=8, epochs=24)
        self.judge: PlainJudge = judge(cache, self.train, "cifar_judge", epochs=16)
        self.known: Known = measure(self.classifier, self.train, cache)
        self.references = {
            "train": Reference.of(self.judge, self.train),
            "test": Reference.of(self.judge, self.test),
        }

    def scored(self, plan: Plan, weight: float, count: int, seed: int, part: str) -> dict[str, float]:
        """The scores of one dream, from the cache if they are there."""
        file = self.cache / "scores" / f"{plan.name}-w{weight:g}-n{count}-s{seed}-{part}.json"
        if file.exists():
            return json.loads(file.read_text())
        began = time.perf_counter()
        dreams = dream(self.known, plan, weight, count, seed, self.cache)
        numbers = score(self.judge, dreams, self.references[part])
        if plan.kind != "none":
            numbers["quadratic"] = likelihood(
                self.classifier.backbone, self.known.layers(plan), model(plan), dreams.pixels
            )["quadratic"]
        numbers["seconds"] = time.perf_counter() - began
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(numbers))
        print(f"{plan.name}, weight {weight:g}, {count} images, seed {seed}: {spelled(numbers)}", flush=True)
        return numbers

    def tuned(self, plan: Plan) -> tuple[float, dict[str, dict[str, float]]]:
        """The weight with the least Frechet distance to training images, on a seed that is not reported.

        With the published number of steps, the weight tuned for fewer steps.
        """
        if plan.kind == "none":
            return 0.0, {}
        if plan.strategy == "published":
            return self.tuned(replace(plan, strategy="layerwise"))
        tried = {weight: self.scored(plan, weight, TUNING_COUNT, TUNING_SEED, "train") for weight in GRIDS[plan.form]}
        best = min(tried, key=lambda weight: tried[weight]["frechet"])
        return best, {f"{weight:g}": numbers for weight, numbers in tried.items()}

    def facts(self) -> dict[str, Any]:
        """What does not depend on a seed: accuracy of the networks, real images as dreams, held-out likelihoods."""
        file = self.cache / "scores" / "facts.json"
        if file.exists():
            return json.loads(file.read_text())
        with torch.no_grad():
            right = float((self.classifier(self.test.pixels).argmax(1) == self.test.labels).double().mean())
        order = torch.randperm(len(self.train), generator=torch.Generator().manual_seed(0))
        gains = {}
        for plan in plans("layerwise"):
            if plan.kind != "none" and plan.form == "typical":
                layers = self.known.layers(plan)
                gains[f"{plan.place} {plan.kind}"] = likelihood(
                    self.classifier.backbone, layers, model(plan), self.test.pixels
                )
        facts = {
            "accuracy of the network on test images": right,
            "judge on test images": score(self.judge, self.test, self.references["test"]),
            **{
                f"{count} training images in place of dreams": score(
                    self.judge, self.train.take(order[:count]), self.references["test"]
                )
                for count in (60, 240, 500)
            },
            "held-out test images under each covariance": gains,
        }
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(facts))
        return facts


def model(plan: Plan) -> str:
    """The kind of covariance under that name in the statistics."""
    return "laplace" if plan.prior_kind == "laplace-dct" else plan.prior_kind  # type: ignore[return-value]


def spelled(numbers: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in numbers.items())


def summary(plan: Plan, weight: float, by_seed: dict[int, dict[str, float]], gain: float | None) -> dict[str, Any]:
    """Mean and standard deviation over seeds."""
    row: dict[str, Any] = {**plan.__dict__, "weight": weight, "seeds": len(by_seed), "held-out gain": gain}
    for metric in METRICS:
        values = torch.tensor([numbers[metric] for numbers in by_seed.values() if metric in numbers])
        if len(values):
            row[metric] = float(values.mean())
            row[f"{metric} std"] = float(values.std()) if len(values) > 1 else None
    return row


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown."""

    def cell(row: dict[str, Any], metric: str, digits: int, factor: float = 1.0) -> str:
        if row.get(metric) is None:
            return "-"
        deviation = row.get(f"{metric} std")
        tail = "" if deviation is None else f" ± {factor * deviation:.{digits}f}"
        return f"{factor * row[metric]:.{digits}f}{tail}"

    lines = [
        "| prior on | covariance | form | weight | seeds | verifier accuracy, % | Frechet distance | diversity | q/D | "
        "held-out gain, nats/dim |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        none = row["kind"] == "none"
        gain = row["held-out gain"]
        lines.append(
            f"| {'-' if none else row['place']} | {row['kind']} | {'-' if none else row['form']} | "
            f"{'-' if none else format(row['weight'], 'g')} | {row['seeds']} | {cell(row, 'accuracy', 1, 100)} | "
            f"{cell(row, 'frechet', 2)} | {cell(row, 'diversity', 2)} | {cell(row, 'quadratic', 2)} | "
            f"{'-' if gain is None else format(gain, '+.3f')} |"
        )
    return "\n".join(lines)


def write(
    out: Path, bench: Benchmark, strategy: Strategy, results: dict[Plan, dict[int, dict[str, float]]],
    weights: dict[Plan, float], tuning: dict[str, Any], count: int,
) -> None:  # fmt: skip
    """JSON, CSV, Markdown and pictures of what there is so far."""
    facts = bench.facts()
    held = facts["held-out test images under each covariance"]
    rows = []
    for plan, by_seed in results.items():
        gain = held.get(f"{plan.place} {plan.kind}", {}).get("gain")
        rows.append(summary(plan, weights[plan], by_seed, gain))
    out.mkdir(parents=True, exist_ok=True)
    record = {
        "command": "python -m benchmarks.dream_quality " + " ".join(sys.argv[1:]),
        "images per dream": count,
        "settings": settings_of(strategy),
        "facts": facts,
        f"tuning (seed {TUNING_SEED}, {TUNING_COUNT} images, Frechet distance to training images)": tuning,
        "rows": rows,
        "by seed": {plan.name: by_seed for plan, by_seed in results.items()},
    }
    (out / f"quality_{strategy}.json").write_text(json.dumps(record, indent=1, default=str) + "\n")
    with (out / f"quality_{strategy}.csv").open("w", newline="") as file:
        fields = list(dict.fromkeys(name for row in rows for name in row))
        writer = csv.DictWriter(file, fields)
        writer.writeheader()
        writer.writerows(rows)
    (out / f"quality_{strategy}.md").write_text(table(rows) + "\n")
    print(table(rows), flush=True)


def pictures(
    out: Path, bench: Benchmark, strategy: Strategy, weights: dict[Plan, float], count: int, seed: int
) -> None:
    """One grid per form: the same seed, only the prior changed."""
    order = torch.randperm(len(bench.test), generator=torch.Generator().manual_seed(0))
    for form in GRIDS:
        if all(plan.form != form for plan in weights if plan.kind != "none"):
            continue
        columns = {"real": bench.test.take(order)}
        for plan, weight in weights.items():
            if plan.kind == "none" or plan.form == form:
                title = "none" if plan.kind == "none" else f"{plan.kind}, {plan.place}"
                columns[title] = dream(bench.known, plan, weight, count, seed, bench.cache)
        grid(out / f"quality_{strategy}_{form}.png", columns, CIFAR_NAMES, (CIFAR_MEAN, CIFAR_STD))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with cifar-100-binary/")
    parser.add_argument("--cache", type=Path, default=Path("dream-cache"), help="networks, dreams and scores")
    parser.add_argument("--out", type=Path, default=Path("docs/dreams"), help="where tables and pictures go")
    parser.add_argument("--strategy", choices=("layerwise", "published", "pyramid"), default="layerwise")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--count", type=int, default=500, help="images per dream")
    options = parser.parse_args()
    bench = Benchmark(options.data, options.cache)
    weights: dict[Plan, float] = {}
    tuning: dict[str, Any] = {}
    for plan in plans(options.strategy):
        weights[plan], tuning[plan.name] = bench.tuned(plan)
    results: dict[Plan, dict[int, dict[str, float]]] = {plan: {} for plan in weights}
    for seed in options.seeds:
        for plan, weight in weights.items():
            results[plan][seed] = bench.scored(plan, weight, options.count, seed, "test")
        write(options.out, bench, options.strategy, results, weights, tuning, options.count)
        if seed == options.seeds[0]:
            pictures(options.out, bench, options.strategy, weights, options.count, seed)


if __name__ == "__main__":
    main()
