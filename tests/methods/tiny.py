"""Every method at a scale of seconds: two tasks of two digits, a narrow network, a few steps of everything."""

import json
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from tiny_hf import save_sentences

from remix.data import Augment, ImageDataset, Splits, TaskStream, load
from remix.inversion import GeneratorSettings, LayerwiseSettings, PixelSettings, PriorSettings, Schedule
from remix.learning.engine import Engine
from remix.learning.method import Method
from remix.learning.stage import Training
from remix.learning.team import Team
from remix.methods import create_method, method_class
from remix.networks import Classifier, create_backbone, create_head, seeded_backbone
from remix.statistics import SelectorRecipe

SHORT = Training(2, 0.05)
TRANSFORMER = json.dumps({
    "model_type": "vit", "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16,
    "image_size": 8, "patch_size": 4, "num_channels": 1,
})  # fmt: skip
DRIFTING = "remix, drifting"
"""REMIX with Gaussians that drift, one batch for BatchNorm and views of pseudo-samples."""
GENERATOR = GeneratorSettings(schedule=Schedule(4, 1e-3), batch=16, noise=8)


def settings(name: str) -> dict[str, Any]:
    """The method's settings, as short as they can be."""
    if name == "joint":
        return {"training": SHORT}
    if name in ("moe-adapter", "vpt", "coda-p", "attriclip"):
        return {"training": SHORT}
    if name == "zs-clip":
        return {}
    common: dict[str, Any] = {"first": SHORT}
    if name in ("pmi", "remix"):
        prior = PriorSettings("laplace" if name == "remix" else "none")
        inversion = LayerwiseSettings(block=Schedule(2, 0.5), refine=Schedule(3, 0.2), prior=prior)
        stages = {
            "head": Training(1, 0.1),
            "last_block": Training(1, 0.05),
            "network": SHORT,
            "balance": Training(1, 0.01),
        }
        counts = {"samples": 20, "samples_per_task": 20, "selectors": SelectorRecipe(epochs=2)}
        return {**common, **stages, **counts, "inversion": inversion}
    if method_class(name).exact:
        return common
    common["later"] = SHORT
    if name in ("rdfcil", "abd", "deepinversion"):
        common["image_generator"] = GENERATOR
    if name == "deepinversion-noise":
        common |= {"samples": 20, "samples_per_task": 20, "inversion": PixelSettings(Schedule(4, 0.1), batch=30)}
    if name in ("ssre", "praka", "dcmi"):
        common |= {stage: Training(2, 1e-2, optimiser="adam") for stage in ("first", "later")}
    if name == "dcmi":
        adam = Training(3, 1e-3, optimiser="adam", betas=(0.0, 0.9))
        common |= {"image_generator": adam, "critic_steps": 2, "width": 2}
    if name == "adagauss":
        common["adapt"] = SHORT
    if name == "ldc":
        common["drift"] = Training(2, 1e-3, weight_decay=0.0, optimiser="adam")
    if name in ("rdfcil", "efcpp"):
        common["balance"] = Training(1, 0.01)
    return common


def tiny_method(name: str) -> Method:
    if name == DRIFTING:
        return create_method("remix", **settings("remix"), follow="drift", together=True, augment_replay=True)
    return create_method(name, **settings(name))


def tiny_stream(per_class: int = 30) -> TaskStream:
    """Two tasks of two digits, ``per_class`` training images each."""
    digits = load("digits")

    def few(data: ImageDataset, count: int) -> ImageDataset:
        rows = [(data.labels == label).nonzero()[:count, 0] for label in range(4)]
        return data.select(torch.cat(rows))

    splits = Splits(few(digits.train, per_class), few(digits.test, 10), digits.normalisation, "digits")
    return TaskStream(splits, tasks=2, classes=4)


@lru_cache
def tiny_sentences() -> dict[str, str]:
    """The options of a text head for features of 8 numbers."""
    folder = Path(tempfile.mkdtemp())
    save_sentences(folder, 8)
    return {"place": str(folder), "projection": str(folder / "projection.safetensors")}


def tiny_student(method: Method, seed: int, head: str = "linear") -> Classifier:
    """The network that a method is for."""
    if not method.transformers:
        backbone = create_backbone("convnet8", width=4, generator=torch.Generator().manual_seed(seed))
        return Classifier(backbone, create_head(method.head_kind(head), backbone.feature_dim))
    backbone = seeded_backbone("transformer", seed, config=TRANSFORMER, adapter=method.adapter_kind(None))
    kind = method.head_kind("text" if method.name in ("zs-clip", "attriclip") else head)
    return Classifier(backbone, create_head(kind, 8, **({} if kind == "linear" else tiny_sentences())))


def tiny_engine(name: str, stream: TaskStream, seed: int = 0, team: Team | None = None) -> Engine:
    augment = Augment(1) if name == DRIFTING else None
    method = tiny_method(name)
    student = tiny_student(method, seed)
    return Engine(student, method, stream.normalisation, augment, batch_size=32, seed=seed, team=team)
