"""What was tried beside exact heads, on birds: 8 species, then 4, from an ImageNet ResNet-34 whose last block learns.

    python -m benchmarks.adaptation_birds DATA --sets 0,1

- remix with its dreams, with maps drawn from a Laplace covariance of each class at the input of the last block instead,
  and with six steps of inversion that begin at these;
- the last block trained on the new species, features held to those of before; the sums of the old ones follow by the
  drift map; beside it the same discriminant (last block, shrinkage 0.3) on the network as it is.

Accuracy on the official test photographs of the 12 species. What the JSON file holds already is not run again.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear, normalize

import remix
from benchmarks.exact_heads import WEIGHTS, drawn, some, where
from benchmarks.learn_birds import tested
from remix.data import Augment, ImageDataset, Splits
from remix.data.cub200 import cub200
from remix.inversion import Schedule
from remix.inversion import layerwise as inverting
from remix.laplace import LaplaceNormal, fit
from remix.learning import Engine, TensorReplay
from remix.learning.feature_losses import feature_distillation
from remix.learning.items import FrozenMaps
from remix.methods.discriminant import Discriminant
from remix.methods.pmi import Pmi
from remix.networks import Items, open_network
from remix.networks.probe import evaluating
from remix.statistics import ClassSums, fit_drift
from remix.support.files import write_text

STEPS, EACH, SIZE = (8, 4), 30, 128
REPLAYS = ("drawn maps", "dreams", "drawn maps, 6 steps of inversion")
HOLDS = (1.0, 10.0)


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder with CUB_200_2011 and weights")
    parser.add_argument("--sets", default="0,1")
    parser.add_argument("--parts", default="later,replay")
    parser.add_argument("--out", type=Path, default=Path("docs/bench/adaptation_birds.json"))
    typed = parser.parse_args()
    splits = cub200(typed.data, size=SIZE, lazy=False)
    for seed in map(int, typed.sets.split(",")):
        found = json.loads(typed.out.read_text())["rows"] if typed.out.exists() else []
        done = {row["what"] for row in found if row["set"] == seed}
        if "later" in typed.parts and "discriminant, network as it is" not in done:
            add(typed.out, later_adaptation(typed.data / WEIGHTS, splits, seed))
        for replay in REPLAYS if "replay" in typed.parts else ():
            if f"remix, {replay}" not in done:
                add(typed.out, [replayed(typed.data / WEIGHTS, splits, seed, replay)])


def add(out: Path, rows: list[dict[str, Any]]) -> None:
    """To the JSON file, and show."""
    found = json.loads(out.read_text())["rows"] if out.exists() else []
    write_text(out, json.dumps({"rows": [*found, *rows]}, indent=1) + "\n")
    print(*(json.dumps(row) for row in rows), sep="\n", flush=True)


# --- replay ---


def replayed(weights: Path, splits: Splits, seed: int, replay: str) -> dict[str, Any]:
    """Two steps of remix with one kind of replay."""
    species = drawn(splits, seed, sum(STEPS))
    learner = remix.Learner("resnet34", "remix", weights=weights, size=SIZE, device="cpu", seed=seed)
    spent = {"replay": 0.0}
    known, began = 0, time.process_time()
    with other_replay(replay, spent):
        for count in STEPS:
            images, labels = splits.train.batch(some(splits.train, species[known : known + count], EACH, seed))
            learner.learn((images, labels), classes=splits.train.classes)
            known += count
    seconds = time.process_time() - began
    return {
        "what": f"remix, {replay}", "set": seed, **tested(learner, splits, species, STEPS[-1]),
        "processor_seconds": round(seconds, 1), "of_them_for_replay": round(spent["replay"], 1),
    }  # fmt: skip


@contextmanager
def other_replay(replay: str, spent: dict[str, float]) -> Iterator[None]:
    """Let pmi and remix replay something else, and count what it costs."""
    known: dict[int, LaplaceNormal] = {}
    remember, dream = Pmi.remember, Pmi.dream

    def measured(self: Pmi, engine: Engine, data: ImageDataset) -> None:
        if replay != "dreams":
            began = time.process_time()
            found = [(items.x, labels) for items, labels in engine.images(data)]
            maps, labels = torch.cat([x for x, _ in found]), torch.cat([one for _, one in found])
            for label in labels.unique().tolist():
                known[label] = fit(maps[labels == label].flatten(1), layout=tuple(maps.shape[1:]))
            spent["replay"] += time.process_time() - began
        remember(self, engine, data)

    def maps_of(labels: Tensor, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        rows = [known[label].sample((), generator).reshape(shape) for label in labels.tolist()]
        return torch.stack(rows).clamp_min(0)  # as after a ReLU

    def dreamed(self: Pmi, engine: Engine) -> TensorReplay:
        began, teacher = time.process_time(), engine.teacher
        assert teacher is not None
        assert engine.present is not None
        shape = next(iter(engine.images(engine.present)))[0].x.shape[1:]
        if replay == "drawn maps":
            labels = torch.arange(self.samples) % engine.old_classes
            drawn_maps = maps_of(labels, tuple(shape), engine.generator)
            found = TensorReplay.of(Items(drawn_maps, engine.start), labels, teacher)
        elif replay == "dreams":
            found = dream(self, engine)
        else:
            targets = self.targets(engine)
            queue = iter(maps_of(targets.labels, tuple(shape), engine.generator))
            short = replace(self, inversion=replace(self.inversion, block=Schedule(6, 0.3, milestones=(4,))))
            with (
                mock.patch.object(Pmi, "targets", return_value=targets),
                mock.patch.object(
                    inverting, "_spread", lambda start, _: torch.stack([next(queue) for _ in start]).to(start)
                ),
            ):
                found = dream(short, engine)
        spent["replay"] += time.process_time() - began
        return found

    with mock.patch.object(Pmi, "remember", measured), mock.patch.object(Pmi, "dream", dreamed):
        yield


# --- adaptation in a later step ---


def later_adaptation(weights: Path, splits: Splits, seed: int) -> list[dict[str, Any]]:
    """A discriminant on the network as it is, and after its last block was trained on the new species."""
    network = open_network("resnet34", None, weights, SIZE)
    species = drawn(splits, seed, sum(STEPS))
    parts = [
        part(splits, some(splits.train, chosen, EACH, seed), species)
        for chosen in (species[: STEPS[0]], species[STEPS[0] :])
    ]
    unseen = part(splits, where(splits.test, species), species, "test")
    last = len(network.backbone.blocks()) - 1
    maps, normalise = FrozenMaps(network.backbone, last, 3), network.preprocessing.normalisation
    generator = torch.Generator().manual_seed(seed)
    augment, device = Augment(SIZE // 8), torch.device("cpu")

    def pooled(data: ImageDataset) -> Tensor:
        with evaluating(network.backbone):
            found = [
                network.backbone.pooled(*items) for items, _ in maps.batches(data, 32, None, normalise, None, device)
            ]
        return torch.cat(found).double()

    def told(what: str, mean: Tensor, scatter: Tensor, began: float) -> dict[str, Any]:
        freedom = sum(len(part) for part in parts) - len(mean)
        weight, bias = Discriminant(mean, scatter, freedom, 0.3).weights()
        spent = time.process_time() - began
        right = (pooled(unseen) @ weight.T + bias).argmax(1) == unseen.labels
        old = unseen.labels < STEPS[0]
        shares = {name: 100 * float(rows.double().mean()) for name, rows in
                  (("all", right), ("old", right[old]), ("new", right[~old]))}  # fmt: skip
        return {"what": what, "set": seed, **shares, "processor_seconds": round(spent, 1)}

    def sums(x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        found = ClassSums.of(x, labels, "dense")
        return found.mean, found.scatter.matrix()

    began = time.process_time()
    mean, scatter = sums(pooled(parts[0]), parts[0].labels)
    before = pooled(parts[1])
    new = sums(before, parts[1].labels)
    rows = [told("discriminant, network as it is", torch.cat([mean, new[0]]), scatter + new[1], began)]
    block = network.backbone.blocks()[last].module
    state = copy.deepcopy(block.state_dict())
    for hold in HOLDS:
        began = time.process_time()
        train(
            network.backbone, block, lambda: maps.batches(parts[1], 32, generator, normalise, augment, device), before,
            parts[1].labels, hold,
        )  # fmt: skip
        after = pooled(parts[1])
        drift, new = fit_drift(before, after), sums(after, parts[1].labels)
        moved = drift.matrix.T @ scatter @ drift.matrix + new[1]
        what = f"discriminant, last block trained on the new species, held by {hold:g}, old sums moved"
        rows.append(told(what, torch.cat([drift(mean), new[0]]), moved, began))
        block.load_state_dict(state)
    return rows


def part(splits: Splits, places: Tensor, species: list[int], name: str = "train") -> ImageDataset:
    """Photographs with labels that are places among the species."""
    images, labels = getattr(splits, name).batch(places)
    return ImageDataset(images, torch.tensor([species.index(int(label)) for label in labels]), tuple(map(str, species)))


def train(backbone: Any, block: Any, batches: Any, before: Tensor, labels: Tensor, hold: float) -> None:
    """Eight epochs of the new species among themselves, features held to those of the block as it was."""
    teacher = copy.deepcopy(block).eval()
    variance = before.var(0).float().clamp_min(1e-6)
    centre = before.mean(0).float()
    means = torch.stack([before[labels == label].mean(0) for label in labels.unique()]).float()
    weight = (means - centre).requires_grad_(True)
    backbone.eval()
    groups = [{"params": block.parameters()}, {"params": [weight], "lr": 0.03}]
    optimiser = torch.optim.SGD(groups, 0.003, momentum=0.9, weight_decay=5e-4)
    for _ in range(8):
        for items, targets in batches():
            with torch.no_grad():
                held = backbone.pool(teacher(items.x))
            found = backbone.pooled(*items)
            scores = 10 * linear(normalize(found - centre), normalize(weight))
            loss = cross_entropy(scores, targets - STEPS[0]) + hold * feature_distillation(found, held, variance)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()


if __name__ == "__main__":
    main()
