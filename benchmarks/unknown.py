"""Photographs of unseen species, and how sure answers may be: birds in three steps, an ImageNet ResNet-34.

    python -m benchmarks.unknown DATA [--sets 3] [--trained 1]

A set is 8 + 4 + 4 species of CUB-200-2011 with 30 photographs each, drawn by a seed; unknown are the test photographs
of the 24 other species that are there. Features of all photographs are computed once. After every step: the expected
calibration error on the official test photographs of known species, with scores as they are and scaled as the model
scales them; the share of these that `--unknown 0.95` keeps and of unknown ones that it refuses; and the area under the
ROC curve between the two, by what is used and by other scores. No test photograph chose anything but which of these
scores is used, on sets 3 to 8. With --trained, so many sets are learned by the method remix, too, from photographs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.exact_heads import (
    STEPS,
    WEIGHTS,
    Table,
    bird_options,
    drawn,
    learn_step,
    new_engine,
    shown,
    some,
    where,
)  # fmt: skip
from remix.data import Splits
from remix.deploy.learner import Learner
from remix.deploy.sureness import Sureness
from remix.methods import create_method
from remix.networks import ExactHead
from remix.networks.probe import evaluating
from remix.statistics import Calibration, ClassSums, Familiarity, Memory
from remix.support.files import write_text
from remix.support.text import as_markdown

HEADS = ("auto", "ncm", "fecam", "ranpac")
TRAINED = "remix"
EACH, KEPT = 30, 0.95
USED = "relative Mahalanobis distance"
SCORES = ("highest probability", "highest logit", "energy", "Mahalanobis distance", USED)


def main() -> None:
    """Compute, compare, print and write."""
    parser = bird_options(__doc__, "unknown")
    parser.add_argument("--sets", type=int, default=3, help="sets of species")
    parser.add_argument("--trained", type=int, default=0, help="sets that a network is trained on, minutes each")
    typed = parser.parse_args()
    table, splits = Table.of(typed.data, typed.size)
    rows = [row for name in HEADS for seed in range(typed.sets) for row in exact_rows(name, table, splits, seed)]
    for seed in range(typed.trained):
        rows += trained_rows(typed.data / WEIGHTS, typed.size, splits, seed)
    write_text(typed.out, json.dumps(rows, indent=1) + "\n")
    print(summary(rows), aurocs(rows), sep="\n\n")


def steps_of(splits: Splits, seed: int) -> Iterator[tuple[list[int], int, int, Tensor]]:
    """Of a set: its species, those that are known before a step and come with it, and the photographs to learn from."""
    species, known = drawn(splits, seed), 0
    for size in STEPS:
        yield species, known, size, some(splits.train, species[known : known + size], EACH, seed)
        known += size


def tested(splits: Splits, species: Sequence[int], known: int) -> tuple[Tensor, Tensor, Tensor]:
    """Places of test photographs of known species, their labels, and places of those of the other species."""
    places = where(splits.test, species[:known])
    labels = torch.tensor([species.index(int(label)) for label in splits.test.labels[places]])
    others = [label for label in splits.test.labels.unique().tolist() if label not in species]
    return places, labels, where(splits.test, others)


def exact_rows(name: str, table: Table, splits: Splits, seed: int) -> Iterator[dict[str, Any]]:
    """After every step of a set."""
    engine = new_engine(table.network, create_method(name), seed)
    for number, (species, known, size, places) in enumerate(steps_of(splits, seed), start=1):
        labels = torch.tensor([species.index(int(label)) for label in splits.train.labels[places]])
        learn_step(engine, table, splits, places, labels, species, known, size, number)
        head, sums = engine.student.head, engine.memory.get(ClassSums.name)
        assert isinstance(head, ExactHead)
        inside, truth, outside = tested(splits, species, known + size)
        with evaluating(head):
            pooled = [table.at("test", part, head.at) for part in (inside, outside)]
            x = [head.map(part).double() for part in pooled]
            logits = [head(part).double() for part in pooled]
        plain = logits[0] / float(head.scale)
        other = {} if sums.own or sums.scatter.kind != "dense" else {"Mahalanobis distance": nearest(sums, x)}
        yield told(name, seed, number, engine.memory, plain, logits, truth, x, other)


def trained_rows(weights: Path, size: int, splits: Splits, seed: int) -> Iterator[dict[str, Any]]:
    """The same of a network that is trained, on photographs."""
    learner = Learner("resnet34", TRAINED, weights=weights, size=size, device="cpu", seed=seed)
    for number, (species, known, new, places) in enumerate(steps_of(splits, seed), start=1):
        learner.learn(splits.train.batch(places), classes=splits.train.classes)
        model = learner.model
        inside, truth, outside = tested(splits, species, known + new)
        names = [splits.train.classes[label] for label in species]
        truth = torch.tensor([model.classes.index(names[label]) for label in truth.tolist()])
        x, plain = [], []
        with evaluating(model.classifier):
            for part in (inside, outside):
                normalise = model.preprocessing.normalisation.normalise
                found = [model.classifier.pooled(normalise(splits.test.batch(rows)[0])) for rows in part.split(32)]
                x.append(torch.cat(found))
                plain.append(model.classifier.head(x[-1]).double())
        logits = [model.scale * part for part in plain]
        assert model.memory is not None
        yield told(TRAINED, seed, number, model.memory, plain[0], logits, truth, x, {})


def told(
    name: str, seed: int, number: int, memory: Memory, plain: Tensor, logits: Sequence[Tensor], truth: Tensor,
    x: Sequence[Tensor], other: dict[str, list[Tensor]],
) -> dict[str, Any]:  # fmt: skip
    """What is measured after a step; pairs are of known and unknown photographs."""
    familiarity, calibration = Familiarity.of(memory, logits[0].shape[1]), memory.get(Calibration.name)
    assert familiarity is not None
    assert isinstance(calibration, Calibration)
    scores = {
        "highest probability": [part.softmax(1).amax(1) for part in logits],
        "highest logit": [part.amax(1) for part in logits],
        "energy": [part.logsumexp(1) for part in logits],
        **other,
        USED: [familiarity(part) for part in x],
    }
    kept, unknown = (100 * float((calibration.share(part) >= 1 - KEPT).double().mean()) for part in scores[USED])
    row = {
        "head": name, "set": seed, "step": number, "classes": logits[0].shape[1],
        "accuracy": 100 * float((logits[0].argmax(1) == truth).double().mean()),
        "ece_plain": error(plain, truth), "ece": error(logits[0], truth),
        "kept": kept, "refused": 100 - unknown, "auroc": {key: auroc(*pair) for key, pair in scores.items()},
    }  # fmt: skip
    print(json.dumps(row), flush=True)
    return row


def nearest(sums: ClassSums, x: Sequence[Tensor]) -> list[Tensor]:
    """Minus the distance to the nearest mean, by the covariance that `Familiarity` takes."""
    covariance = 0.1 * sums.scatter.matrix() / sums.freedom
    variance = sums.scatter.squares()[0] / sums.freedom
    covariance.diagonal().add_(0.9 * variance + 1e-4 * variance.mean())
    root = torch.linalg.cholesky(covariance)
    means = torch.linalg.solve_triangular(root, sums.mean.T, upper=False).T
    return [-torch.cdist(torch.linalg.solve_triangular(root, one.T, upper=False).T, means).amin(1) for one in x]


def error(logits: Tensor, labels: Tensor) -> float:
    """The expected calibration error in percent."""
    found = Sureness()
    found.add(logits.softmax(1), labels)
    return found.error()


def auroc(known: Tensor, unknown: Tensor) -> float:
    """How often a known photograph has a higher score than an unknown one, in percent."""
    return 100 * float((known[:, None] > unknown).double().mean() + 0.5 * (known[:, None] == unknown).double().mean())


# --- tables ---


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown: by head, after the last step, mean ± deviation over sets."""
    cells = []
    for name in (*HEADS, TRAINED):
        mine = [row for row in rows if row["head"] == name and row["step"] == len(STEPS)]
        if mine:
            numbers = {key: [row[key] for row in mine] for key in ("ece_plain", "ece", "kept", "refused")}
            cells.append([name, *map(shown, [*numbers.values(), [row["auroc"][USED] for row in mine]])])
    return as_markdown(["head", "ECE, plain", "ECE", "known kept", "unknown refused", "AUROC"], cells, left=1)


def aurocs(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown: by score, after every step of the default head."""
    mine = [row for row in rows if row["head"] == HEADS[0]]
    cells = [
        [name, *(shown([row["auroc"][name] for row in mine if row["step"] == step]) for step in (1, 2, 3))]
        for name in SCORES
        if all(name in row["auroc"] for row in mine)
    ]
    return as_markdown(["score", "8 species", "12", "16"], cells, left=1)


if __name__ == "__main__":
    main()
