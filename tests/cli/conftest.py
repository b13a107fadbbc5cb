"""A small network that has learned a few digits in seconds, its weights as a file, and digits as a folder of images."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy

from remix.cli import main
from remix.learning import Model, load_model
from remix.networks import Classifier, LinearHead, create_backbone

MEAN, STD = 0.305, 0.376
# In the order of the head, which is not that of the alphabet.
NAMES = ("zero", "one", "two", "three")
OPTIONS = ["--backbone", "convnet8", "--options", "width=4", "--mean", str(MEAN), "--std", str(STD)]


@dataclass(frozen=True)
class Digits:
    """Files: images by class, weights, and the model that `remix measure` makes of them."""

    images: Path
    weights: Path
    model: Path
    names: tuple[str, ...] = NAMES

    @property
    def network(self) -> tuple[str, ...]:
        """The options that name the weights."""
        return ("--weights", str(self.weights), *OPTIONS)

    def load(self) -> Model:
        return load_model(self.model)


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def train() -> Classifier:
    data = load_digits(n_class=len(NAMES))
    images = (torch.tensor(data.images, dtype=torch.float32)[:, None] / 16 - MEAN) / STD
    labels = torch.tensor(data.target)
    generator = torch.Generator().manual_seed(0)
    backbone = create_backbone("convnet8", width=4, generator=generator)
    classifier = Classifier(backbone, LinearHead(backbone.feature_dim, [len(NAMES)], generator=generator))
    optimiser = torch.optim.SGD(classifier.parameters(), 0.1, 0.9)
    for _ in range(4):
        for rows in torch.randperm(len(labels), generator=generator).split(64):
            optimiser.zero_grad()
            cross_entropy(classifier(images[rows]), labels[rows]).backward()
            optimiser.step()
    return classifier.eval()


def write_images(folder: Path, per_class: int) -> None:
    data = load_digits(n_class=len(NAMES))
    for label, name in enumerate(NAMES):
        (folder / name).mkdir(parents=True)
        for i, image in enumerate(data.images[data.target == label][:per_class]):
            Image.fromarray((image * 255 / 16).round().astype("uint8")).save(folder / name / f"{i:03}.png")


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> Digits:
    folder = tmp_path_factory.mktemp("digits")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    classifier = train()
    head = classifier.head.classifier(0).weight.detach()
    save_file({**classifier.backbone.state_dict(), "fc.weight": head}, folder / "digits.safetensors")
    write_images(folder / "images", 40)
    files = Digits(folder / "images", folder / "digits.safetensors", folder / "digits.remix")
    both = ("--kinds", "laplace,dense", "--views", "channels,map")
    main(["measure", str(files.images), *files.network, "--out", str(files.model), *both])
    torch.set_num_threads(threads)
    return files


@pytest.fixture
def remix(capsys):
    """Runs a command; its status and what it printed to standard output and standard error."""

    def run(*words) -> tuple[int, str, str]:
        try:
            main([str(word) for word in words])
            status = 0
        except SystemExit as end:
            status = end.code
        out, err = capsys.readouterr()
        return status, out, err

    return run
