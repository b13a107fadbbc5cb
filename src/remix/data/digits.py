"""The digits that come with scikit-learn: the data set that needs nothing."""

from __future__ import annotations

import numpy as np
import torch

from remix.data.images import ImageDataset
from remix.data.normalisation import Normalisation
from remix.data.registry import dataset
from remix.data.splits import Splits, hold_out

__all__ = ["digits"]

NORMALISATION = Normalisation((0.3053,), (0.3759,))


@dataset("digits")
def digits(holdout: float = 0.2, seed: int = 0) -> Splits:
    """1,797 handwritten digits, 8 x 8 grey, 10 classes; needs nothing.

    Args:
        holdout: fraction of every class that is the test part.
        seed: of that split.

    """
    from sklearn.datasets import load_digits  # takes a second: only who asks for them waits for it

    found = load_digits()
    pixels = np.rint(found.images * (255 / 16)).astype(np.uint8)
    labels = torch.from_numpy(found.target.astype(np.int64))
    everything = ImageDataset(torch.from_numpy(pixels)[:, None], labels, tuple("0123456789"))
    train, test = hold_out(everything, holdout, seed)
    return Splits(train, test, NORMALISATION, "digits")
