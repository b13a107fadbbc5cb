"""Nothing that people call draws from torch's global random source, or depends on where it stands."""

import pytest
import torch
from tiny_hf import make, save
from torch import nn

import remix
from remix.experiments.config import resolve
from remix.experiments.plan import load_tasks
from remix.experiments.run import execute
from remix.experiments.run_directory import RunDirectory
from tests.deploy.small import NAMES, QUICK, digits, learner, weights_of


@pytest.fixture(autouse=True)
def same_state():
    """What every test here promises."""
    before = torch.get_rng_state()
    yield
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("method", ["remix", "lwf", "ranpac"])
def test_learning_predicting_dreaming_and_files(method, tmp_path):
    made = learner(method=method)
    made.learn(digits([0, 1, 2]), classes=NAMES)
    made.learn(digits([3]), classes=NAMES)
    made.predict(digits([0])[0])
    made.evaluate(digits([0, 3]))
    if method == "remix":
        made.dream(n=1, steps=2)
    made.save(tmp_path / "model.remix")
    remix.load(tmp_path / "model.remix")
    made.export(tmp_path / "model.safetensors")


@pytest.mark.parametrize("data", [None, digits([0, 1, 2])], ids=["dreams", "images"])
def test_adopting(data):
    made = learner()
    with torch.random.fork_rng(devices=[]):
        made.learn(digits([0, 1, 2]), classes=NAMES)
    remix.Learner.adopt(
        made.model.classifier, data, classes=NAMES[:3], backbone="convnet8", options={"width": 4}, **QUICK
    )


def test_opening_a_folder_of_transformers(tmp_path):
    with torch.random.fork_rng(devices=[]):
        folder = save(make("vit"), tmp_path / "vit")
    made = remix.Learner(f"hf:{folder}")
    images = torch.linspace(0, 1, 8 * 3 * 32 * 32).view(8, 3, 32, 32)
    made.learn((images, torch.arange(8) % 2))
    assert made.history[0].method in ("lda", "ranpac")  # it came with weights


def test_fitting():
    rows = torch.randn(60, 12, generator=torch.Generator().manual_seed(0))
    remix.laplace.fit(rows)


@pytest.mark.slow
def test_a_run(tmp_path):
    few = ["settings.first.epochs=1", "settings.samples=20", "settings.samples_per_task=0"]
    config = resolve("digits", method="remix", assignments=few)
    execute(config, load_tasks(config.data, None), RunDirectory(tmp_path / "run"))


class WithDropout(nn.Module):
    """Draws from the global source whenever it is trained."""

    def __init__(self):
        super().__init__()
        self.low = nn.Sequential(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Dropout(0.5))
        self.high = nn.Sequential(nn.Conv2d(6, 8, 3), nn.BatchNorm2d(8), nn.ReLU())

    def forward(self, x):
        return self.high(self.low(x))


def test_a_network_with_dropout_learns_the_same_wherever_the_source_stands():
    with torch.random.fork_rng(devices=[]):
        network, found = WithDropout(), []
        for seed in (1, 2):
            torch.manual_seed(seed)
            made = remix.Learner(network, "finetune", blocks=["low", "high"], input_shape=(1, 8, 8), **QUICK)
            made.learn(digits([0, 1]), classes=NAMES)
            found.append(weights_of(made.model))
    assert all(torch.equal(found[0][key], found[1][key]) for key in found[0])
