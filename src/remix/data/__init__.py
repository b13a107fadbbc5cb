"""Data sets on disk -> labelled images -> a stream of tasks.

`load` reads a data set by name, or any image folder by path. Images are bytes (uint8) until they are on the device.
"""

# Each of these registers its data sets; the order is the one in which they are listed.
from remix.data import digits, fashion_mnist, cifar, tiny_imagenet, cub200, folder  # noqa: F401  # isort: skip
from remix.data.batches import Augment, batches
from remix.data.errors import DataError, MissingData, Skipped, UnreadableImage
from remix.data.images import ImageDataset, ImageFiles, Splits, hold_out
from remix.data.preprocessing import CLIP, IMAGENET, Normalisation, Preprocessing
from remix.data.registry import dataset, in_data_folder, list_datasets, load
from remix.data.task_stream import Task, TaskStream, class_order

__all__ = [
    "CLIP",
    "IMAGENET",
    "Augment",
    "DataError",
    "ImageDataset",
    "ImageFiles",
    "MissingData",
    "Normalisation",
    "Preprocessing",
    "Skipped",
    "Splits",
    "Task",
    "TaskStream",
    "UnreadableImage",
    "batches",
    "class_order",
    "dataset",
    "hold_out",
    "in_data_folder",
    "list_datasets",
    "load",
]
