"""Exact heads on birds: species of CUB-200-2011 in three steps, an ImageNet ResNet-34, and beside them a linear probe.

    python -m benchmarks.exact_heads DATA [--sets 10]
    python -m benchmarks.exact_heads DATA --network hf:vit-b16/ --size 112 --repeats 0 --out birds.json
    python -m benchmarks.exact_heads DATA --network hf:vit-b16/ --size 112 --repeats 0 --of cifar100 --out cifar.json

A set is 16 or 40 species, and 5, 10 or 30 photographs of each, drawn by a seed out of those that are there; of
CIFAR-100 20 classes of 30 images. Features of all photographs are computed once; every head is learned from them by the
methods of the package, three steps, and tested on the official test photographs of all species so far. Which head,
blocks, shrinkage and penalty are taken, the first step's training photographs decide. Then the three steps of one set
are learned from photographs, and timed beside the bare passes of the same photographs through the network.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from remix.data import ImageDataset, Preprocessing, Splits, Task, class_order, load
from remix.data.cub200 import cub200
from remix.data.images import first_of_each
from remix.deploy.learner import Learner
from remix.experiments.paired import spread
from remix.learning import Engine, Method
from remix.methods import create_method
from remix.methods.step_features import StepFeatures, block_sizes
from remix.networks import Classifier, LinearHead, OpenedNetwork, Pooling, open_network
from remix.networks.probe import evaluating
from remix.support.files import write_text
from remix.support.text import as_markdown

STEPS = (8, 4, 4)
DESIGNS = ((STEPS, 30), (STEPS, 10), (STEPS, 5), ((20, 10, 10), 30))
PROBE = "joint linear probe"
CIFAR_DESIGNS = (((10, 5, 5), 30),)
CIFAR_CLASSES, CIFAR_IMAGES = 20, 50  # the first of order A, and of each so many for training and for test
WEIGHTS = "weights/resnet34_imagenette10_fp16.safetensors"
HEADS: dict[str, Callable[[], Method]] = {
    "auto": partial(create_method, "auto"),
    "nearest mean, last block": partial(create_method, "ncm", rooted=False),
    "discriminant, last block, shrinkage 0.3": partial(create_method, "lda", rooted=False, shrinkage=0.3),
    "ncm": partial(create_method, "ncm"),
    "lda": partial(create_method, "lda"),
    "lda, laplace": partial(create_method, "lda", covariance="laplace"),
    "lda, diagonal": partial(create_method, "lda", covariance="diagonal"),
    "fecam": partial(create_method, "fecam"),
    "ranpac": partial(create_method, "ranpac"),
}
TIMED = ("auto", "ncm", "lda", "fecam", "ranpac")


def main() -> None:
    """Compute, compare, print and write."""
    parser = bird_options(__doc__, "exact_heads")
    parser.add_argument("--sets", type=int, default=10, help="sets of species")
    parser.add_argument("--repeats", type=int, default=3, help="of every time, of which the median counts; 0 for none")
    parser.add_argument("--network", default="resnet34", help="or hf:PATH")
    parser.add_argument("--of", default="cub200", choices=("cub200", "cifar100"))
    typed = parser.parse_args()
    table, splits = Table.of(typed.data, typed.size, typed.network, typed.of)
    designs = DESIGNS if typed.of == "cub200" else CIFAR_DESIGNS
    rows = [
        row
        for steps, each in designs
        for seed in range(typed.sets)
        for row in learn_set(table, splits, steps, each, seed)
    ]
    times = (
        [one for name in TIMED for one in timed(name, table.network, splits, typed.repeats)] if typed.repeats else []
    )
    found = {"network": typed.network, "of": typed.of, "size": typed.size, "feature_seconds": table.seconds}
    write_text(typed.out, json.dumps({**found, "steps": rows, "times": times}, indent=1) + "\n")
    print(accuracies(rows, designs), ratios(times), sep="\n\n")


def bird_options(about: str | None, name: str) -> argparse.ArgumentParser:
    """Options of every benchmark on birds: the data, the side of photographs, the file of its results."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder with CUB_200_2011 and weights")
    parser.add_argument("--size", type=int, default=128, help="side of the photographs in pixels")
    parser.add_argument("--out", type=Path, default=Path(f"docs/bench/{name}.json"))
    return parser


class Table:
    """Pooled features of the last blocks of all photographs, by part of the data and block."""

    def __init__(self, network: OpenedNetwork, splits: Splits) -> None:
        self.network = network
        self.sizes = block_sizes(network.backbone)
        self.blocks = range(len(self.sizes) - 4, len(self.sizes))
        began = time.process_time()
        self.rows = {name: self._features(part) for name, part in (("train", splits.train), ("test", splits.test))}
        self.seconds = round(time.process_time() - began, 1)

    @classmethod
    def of(cls, root: Path, size: int, network: str = "resnet34", data: str = "cub200") -> tuple[Table, Splits]:
        """With the photographs that it is of."""
        opened = open_network(network, None, root / WEIGHTS if network == "resnet34" else None, size)
        splits = cifar(root, size) if data == "cifar100" else cub200(root, size=size, lazy=False)
        return cls(opened, splits), splits

    def _features(self, data: ImageDataset) -> dict[int, Tensor]:
        normalise = self.network.preprocessing.normalisation.normalise
        with evaluating(self.network.backbone):
            parts = [
                self.network.backbone.pooled(normalise(data.batch(rows)[0]), at=Pooling(tuple(self.blocks)))
                for rows in torch.arange(len(data)).split(32)
            ]
        split = torch.cat(parts).split([self.sizes[block] for block in self.blocks], 1)
        return dict(zip(self.blocks, split, strict=True))

    def bound(self, name: str, method: Method) -> Method:
        """The method of a head by name: what one would write by hand has the last block alone."""
        last = self.network.backbone.blocks()[-1].name
        return replace(method, blocks=(last,)) if "last block" in name else method  # type: ignore[call-arg]

    def at(self, part: str, places: Tensor, at: Pooling) -> Tensor:
        """Of some photographs and blocks, side by side."""
        return torch.cat([self.rows[part][block][places] for block in at.blocks], 1)


def cifar(root: Path, size: int) -> Splits:
    """Some classes and images of CIFAR-100, enlarged."""
    splits = load("cifar100", root, size=size)
    order = class_order("A", 100)[:CIFAR_CLASSES]
    train, test = (first_of_each(part.relabelled(order), CIFAR_IMAGES) for part in (splits.train, splits.test))
    return replace(splits, train=train, test=test)


def learn_set(table: Table, splits: Splits, steps: Sequence[int], each: int, seed: int) -> list[dict[str, Any]]:
    """Every head, step by step, on the species of a seed; and the probe on all photographs so far."""
    species = drawn(splits, seed, sum(steps))
    rows = []
    for name, make in {**HEADS, PROBE: None}.items():
        engine = new_engine(table.network, table.bound(name, make()), seed) if make else None
        known = 0
        for number, size in enumerate(steps, start=1):
            new = species[known : known + size] if engine else species[: known + size]
            places = some(splits.train, new, each, seed)
            labels = torch.tensor([species.index(int(label)) for label in splits.train.labels[places]])
            if engine:
                learn_step(engine, table, splits, places, labels, species, known, size, number)
            known += size
            tested = where(splits.test, species[:known])
            truth = torch.tensor([species.index(int(label)) for label in splits.test.labels[tested]])
            said = answers(engine, table, tested) if engine else probed(table, places, labels, tested)
            right = said == truth
            old = truth < known - size
            rows.append(
                {
                    "design": [*steps], "each": each,
                    "head": name, "set": seed, "step": number, "classes": known, "photographs": len(places),
                    "all": percent(right), "old": percent(right[old]), "new": percent(right[~old]),
                    "left_out": engine.estimates.get("images left out in turn") if engine else None,
                    "chosen": engine.notes if engine else [],
                }
            )  # fmt: skip
        print(json.dumps({key: rows[-1][key] for key in ("design", "each", "head", "set", "all")}), flush=True)
    return rows


def learn_step(
    engine: Engine, table: Table, splits: Splits, places: Tensor, labels: Tensor, species: Sequence[int], known: int,
    size: int, number: int,
) -> None:  # fmt: skip
    """Learn some species from features that are there already."""
    with mock.patch("remix.methods.exact.step_features", partial(looked_up, table, places, labels)):
        engine.learn(task(splits, places, labels, species, known, size, number))


def looked_up(
    table: Table, places: Tensor, labels: Tensor, engine: Engine, data: ImageDataset, at: Pooling, sizes: Sequence[int]
) -> StepFeatures:
    """In place of a pass through the network."""
    return StepFeatures(table.at("train", places, at), labels, at.blocks, tuple(sizes))


def answers(engine: Engine, table: Table, places: Tensor) -> Tensor:
    """The classes that the engine's head finds most probable."""
    head = engine.student.head
    assert head.at is not None
    with evaluating(head):
        return head(table.at("test", places, head.at)).argmax(1)


def probed(table: Table, places: Tensor, labels: Tensor, tested: Tensor) -> Tensor:
    """The answers of a logistic regression on the last block's features, scaled, with a squared penalty of 0.01 / 2."""
    last = Pooling((table.blocks[-1],))
    x, unseen = table.at("train", places, last), table.at("test", tested, last)
    mean, std = x.mean(0), x.std(0) + 1e-6
    weight = torch.zeros(int(labels.max()) + 1, x.shape[1] + 1, requires_grad=True)
    optimiser = torch.optim.LBFGS([weight], max_iter=100, line_search_fn="strong_wolfe")

    def scores(rows: Tensor) -> Tensor:
        return (rows - mean) / std @ weight[:, 1:].T + weight[:, 0]

    def loss() -> Tensor:
        optimiser.zero_grad()
        value = cross_entropy(scores(x), labels) + 0.005 * weight[:, 1:].square().sum()
        value.backward()
        return value

    optimiser.step(loss)
    return scores(unseen).argmax(1)


def new_engine(network: OpenedNetwork, method: Method, seed: int) -> Engine:
    """Of a network that stays as it is."""
    backbone = network.backbone
    student = Classifier(backbone, LinearHead(backbone.feature_dim))
    normalisation = network.preprocessing.normalisation
    return Engine(student, method.on_trained(), normalisation, seed=seed, start=len(backbone.blocks()))


def task(
    splits: Splits, places: Tensor, labels: Tensor, species: Sequence[int], known: int, size: int, number: int
) -> Task:
    """The photographs of a step as a task."""
    names = tuple(splits.train.classes[label] for label in species)
    images, _ = splits.train.batch(places)
    data = ImageDataset(images, labels, names)
    return Task(number - 1, data, data, range(known, known + size), names[known : known + size], tuple(range(size)))


def drawn(splits: Splits, seed: int, count: int = sum(STEPS)) -> list[int]:
    """The species of a set, by label."""
    there = [label for label, count in enumerate(splits.train.counts().values()) if count]
    order = torch.randperm(len(there), generator=torch.Generator().manual_seed(seed))
    return [there[place] for place in order[:count]]


def where(data: ImageDataset, species: Sequence[int]) -> Tensor:
    """Places of the photographs of some species."""
    return torch.isin(data.labels, torch.tensor(species)).nonzero()[:, 0]


def some(data: ImageDataset, species: Sequence[int], each: int, seed: int) -> Tensor:
    """Places of ``each`` photographs of every species, drawn by the seed."""
    rows = []
    for label in species:
        places = where(data, [label])
        generator = torch.Generator().manual_seed(1000 * seed + label)
        rows.append(places[torch.randperm(len(places), generator=generator)[:each]])
    return torch.cat(rows)


def percent(right: Tensor) -> float | None:
    """Of a vector of truths; None of none."""
    return 100 * float(right.double().mean()) if len(right) else None


# --- time ---


def timed(name: str, network: OpenedNetwork, splits: Splits, repeats: int) -> list[dict[str, Any]]:
    """Processor seconds of three steps of `remix learn`, without reading files, and of the bare passes."""
    species = drawn(splits, 0)
    spent: dict[int, list[tuple[float, float]]] = {}
    images: dict[int, int] = {}
    for _ in range(repeats):
        learner = Learner(network.backbone, name, device="cpu")
        learner._network = network  # with weights, unlike a module that somebody brings
        known = 0
        for number, size in enumerate(STEPS, start=1):
            data, labels = splits.train.batch(where(splits.train, species[known : known + size]))
            taken = learner.intake((data, labels), classes=splits.train.classes)
            images[number] = len(taken.train)
            began = time.process_time()
            learner.learn_intake(taken, learner.settings)
            step = time.process_time() - began
            spent.setdefault(number, []).append((step, bare(network, taken.train)))
            known += size
    return [
        {
            "head": name, "step": number, "photographs": images[number],
            "seconds": round(median(step for step, _ in pairs), 3),
            "bare_seconds": round(median(passes for _, passes in pairs), 3),
            "ratio": round(median(step / passes for step, passes in pairs), 3),
        }
        for number, pairs in spent.items()
    ]  # fmt: skip


def bare(network: OpenedNetwork, data: ImageDataset) -> float:
    """Processor seconds that the images take to go through the network, in the batches of a step."""
    preprocessing: Preprocessing = network.preprocessing
    began = time.process_time()
    with evaluating(network.backbone):
        for rows in torch.arange(len(data)).split(32):
            network.backbone.pooled(preprocessing.normalisation.normalise(data.batch(rows)[0]))
    return time.process_time() - began


# --- tables ---


def shown(values: Sequence[float]) -> str:
    """Mean ± standard deviation; a dash of none."""
    if not values:
        return "-"
    found = spread(values)
    return f"{found.mean:.1f}" + (f" ± {found.std:.1f}" if found.std is not None else "")


def accuracies(rows: Sequence[dict[str, Any]], designs: Sequence[tuple[Sequence[int], int]] = DESIGNS) -> str:
    """Markdown: accuracy on the test photographs of all species after the last step, mean ± deviation over sets."""
    cells = []
    for name in (*HEADS, PROBE):
        cells.append([name])
        for steps, each in designs:
            key = {"head": name, "design": [*steps], "each": each, "step": len(steps)}
            cells[-1].append(shown([row["all"] for row in rows if key.items() <= row.items()]))
    names = [f"{' + '.join(map(str, steps))}, {each} each" for steps, each in designs]
    return as_markdown(["head", *names], cells, left=1)


def ratios(times: Sequence[dict[str, Any]]) -> str:
    """Markdown: what steps cost beside the bare passes of their photographs."""
    cells = []
    for name in TIMED:
        mine = [row for row in times if row["head"] == name]
        cells.append([name, *(f"{row['seconds']:.1f} ({row['ratio']:.2f} x)" for row in mine)])
    return as_markdown(["head", *(f"step {number}" for number in range(1, len(STEPS) + 1))], cells, left=1)


if __name__ == "__main__":
    main()
