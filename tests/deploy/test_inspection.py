"""Every byte of a model file is accounted for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from remix.deploy.inspection import KINDS, inspect_file
from remix.learning import LearnStep, save_model
from remix.networks import Classifier, ExactLinearHead, FeatureMap, RoutedHead
from remix.statistics import Calibration, ClassSums, Memory, Selectors, batchnorm_points, measure_layers

FILES = Path(__file__).parent.parent / "learning" / "files"


def test_the_parts_add_up_to_the_file(model_file):
    found = inspect_file(model_file)
    assert sum(part.bytes for part in found.parts) == found.bytes == model_file.stat().st_size
    assert sum(total.bytes for total in found.totals()) == found.bytes
    assert {part.kind for part in found.parts} <= set(KINDS)


def test_every_kind_is_told_apart(model, tmp_path):
    memory = Memory()
    backbone = model.classifier.backbone
    images = torch.randn(30, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    memory.layers = measure_layers(backbone, [images], batchnorm_points(backbone), kinds=("laplace", "dense"))
    memory.gaussians, memory.classes, memory.tasks = model.memory.gaussians, model.memory.classes, model.memory.tasks
    vectors = {name: torch.ones(4, 2, 16) for name in ("bias", "scale", "shift", "mean", "variance")}
    memory.keep(Calibration.of(torch.arange(9.0), 9))
    memory.selectors = Selectors((0, 1, 2, 3), torch.zeros(4, 32, 16), **vectors)
    sizes = model.classifier.head.task_sizes
    routed = Classifier(backbone, RoutedHead(16, sizes))
    save_model(tmp_path / "routed.remix", replace(model, classifier=routed, memory=memory))
    memory.keep(replace(ClassSums.of(torch.randn(8, 16), torch.arange(8) % 4, "dense"), method="ranpac"))
    map = FeatureMap([4], [16]).with_projection(16, torch.Generator())
    head = ExactLinearHead(map, sizes, torch.zeros(4, 16), torch.zeros(4))
    save_model(tmp_path / "all.remix", replace(model, memory=memory, classifier=Classifier(backbone, head)))
    of_routed = {total.kind for total in inspect_file(tmp_path / "routed.remix").totals()}
    found = inspect_file(tmp_path / "all.remix")
    kinds = [total.kind for total in found.totals()]
    assert kinds == [kind for kind in KINDS if kind != "prototypes"]
    assert of_routed == {*kinds, "prototypes"} - {"class sums", "random projection"}
    assert sum(total.bytes for total in found.totals()) == found.bytes


def test_classes_and_when_each_was_learned(model, tmp_path):
    more = LearnStep(("zero",), (5,), "remix", {}, ("zero",), date="2026-12-01T00:00:00+00:00")
    save_model(tmp_path / "m.remix", replace(model, history=(*model.history, more)))
    first, *_, last = inspect_file(tmp_path / "m.remix").classes
    assert (first.name, first.images, first.learned[:10], first.extended) == (
        "zero", 142, "2026-11-15", ("2026-12-01T00:00:00+00:00",),
    )  # fmt: skip
    assert (last.name, last.learned[:10], last.extended) == ("drei ³", "2026-11-16", ())
    old = inspect_file(FILES / "model-v1.remix").classes
    assert [entry.learned for entry in old] == ["task 1", "task 1", "task 2", "task 2"]
