"""Small steps of learning, for tests: digits, a narrow network, two epochs."""

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_digits

import remix

NAMES = [f"digit {i}" for i in range(10)]
QUICK = {"epochs": 2, "samples": 6, "batch": 16}
NETWORK = {"backbone": "convnet8", "options": {"width": 4}}


def digits(classes, each=10):
    """Images (N, 1, 8, 8) within 0..1 and labels of some digits."""
    data = load_digits()
    rows = np.concatenate([np.flatnonzero(data.target == label)[:each] for label in classes])
    return torch.tensor(data.images[rows] / 16, dtype=torch.float32)[:, None], torch.tensor(data.target[rows])


def folder(root, classes, each=10):
    """The same as PNG files, one folder per class."""
    images, labels = digits(classes, each)
    for place, (image, label) in enumerate(zip(images, labels.tolist(), strict=True)):
        path = root / NAMES[label] / f"{place:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((image[0] * 255).byte().numpy()).save(path)
    return root


def learner(**changes):
    """A learner of digits, nothing learned."""
    return remix.Learner(**{**NETWORK, **QUICK, **changes})


def weights_of(model):
    """Its parameters and buffers, copied."""
    return {key: value.clone() for key, value in model.classifier.state_dict().items()}
