"""The digits that come with REMIX: the data set that needs nothing.

They are scikit-learn's copy of the test part of the Optical Recognition of Handwritten Digits (E. Alpaydin, C. Kaynak,
UCI, CC BY 4.0), written by `benchmarks/digits_file.py`.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file

from remix.data.images import ImageDataset, Splits, hold_out
from remix.data.preprocessing import Normalisation
from remix.data.registry import dataset

__all__ = ["digits"]

NORMALISATION = Normalisation((0.3053,), (0.3759,))


@dataset("digits")
def digits(holdout: float = 0.2, seed: int = 0) -> Splits:
    """1,797 handwritten digits, 8 x 8 grey, 10 classes; needs nothing.

    Args:
        holdout: fraction of every class that is the test part.
        seed: of that split.

    """
    found = load_file(Path(__file__).with_name("digits.safetensors"))  # (1797, 8, 8) of 0..16, and (1797,)
    pixels = (found["images"].double() * (255 / 16)).round().to(torch.uint8)
    everything = ImageDataset(pixels[:, None], found["labels"].to(torch.int64), tuple("0123456789"))
    train, test = hold_out(everything, holdout, seed)
    return Splits(train, test, NORMALISATION, "digits")
