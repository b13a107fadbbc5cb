"""Writes the file of the digits that REMIX brings along, from scikit-learn: ``python -m benchmarks.digits_file``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from sklearn.datasets import load_digits

from remix.data import digits

if __name__ == "__main__":
    found = load_digits()
    arrays = {"images": found.images.astype(np.uint8), "labels": found.target.astype(np.uint8)}
    save_file(arrays, Path(digits.__file__).with_name("digits.safetensors"))
