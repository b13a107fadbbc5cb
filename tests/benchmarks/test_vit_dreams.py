"""The trials of inversion in a vision transformer."""

import math
from dataclasses import replace

import pytest
import torch
import yaml
from PIL import Image
from tiny_hf import save_clip

from benchmarks.vit_dreams import Trial, measure
from remix.experiments.config import resolve
from remix.networks import open_text_tower


@pytest.fixture
def preset(tmp_path):
    """Two tasks of two classes on a tiny CLIP."""
    open_text_tower.cache_clear()
    save_clip(tmp_path / "clip")
    generator = torch.Generator().manual_seed(0)
    for name in ("cat", "dog", "bird", "fish"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(8):
            pixels = torch.randint(0, 256, (16, 16, 3), generator=generator, dtype=torch.uint8).numpy()
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    short = {"epochs": 1, "lr": 0.001, "milestones": [], "weight_decay": 0, "optimiser": "adamw"}
    settings = {"setting": "clip", "first": short, "network": short, "selection": False}
    values = {
        "data": {"name": str(tmp_path / "photos"), "tasks": 2, "options": {"size": 16}},
        "network": {
            "backbone": f"hf:{tmp_path / 'clip'}",
            "options": {"input_shape": [3, 16, 16], "adapter": "moe"},
            "head": "text",
        },
        "batch_size": 8,
        "methods": {"remix": {**settings, "inversion": {"entry": {"steps": 2, "rate": 0.1}}}},
    }
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def test_a_trial_changes_rates_and_weights_alone():
    settings = resolve("cub-vit-mini", method="remix").settings.inversion
    found = Trial((3, 0.2), (5, 0.3), 0.4).of(settings)
    assert (found.block.steps, found.refine.rate, found.statistics, found.prior.weight) == (3, 0.3, 0.4, 0.02)
    same = ("block", "refine", "statistics", "input", "prior", "batch", "micro_batch")
    assert replace(found, **{name: getattr(settings, name) for name in same}) == settings


def test_more_steps_come_nearer_to_the_targets(preset, tmp_path):
    trials = [Trial((1, 1e-6), (steps, 0.05), 1e-6) for steps in (1, 60)]
    one, many = measure(str(tmp_path), str(preset), trials)
    assert math.isfinite(one["distance"])
    assert many["distance"] < 0.8 * one["distance"]
    assert set(many["terms"]) == {"features", "statistics", "prior", "variation"}
    assert 0 <= many["read_without_adapters"] <= 100
