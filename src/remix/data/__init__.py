"""Data sets on disk -> labelled images -> a stream of tasks.

`load` reads a data set by name, or any image folder by path. Images are bytes (uint8) until they are on the device.
"""

from remix.data import cifar, digits, folder  # noqa: F401  (each registers its data sets)
from remix.data.errors import DataError, MissingData, UnreadableImage
from remix.data.images import ImageDataset, ImageFiles
from remix.data.normalisation import CLIP, IMAGENET, Normalisation
from remix.data.preprocessing import Preprocessing
from remix.data.registry import dataset, list_datasets, load
from remix.data.splits import Skipped, Splits, hold_out

__all__ = [
    "CLIP",
    "IMAGENET",
    "DataError",
    "ImageDataset",
    "ImageFiles",
    "MissingData",
    "Normalisation",
    "Preprocessing",
    "Skipped",
    "Splits",
    "UnreadableImage",
    "dataset",
    "hold_out",
    "list_datasets",
    "load",
]
