"""What the terms of losses and the stages of training are called, in a sentence each."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["INVERSION", "STAGES", "TRAINING", "explained"]

TRAINING = {
    "cross-entropy": "classification of the task's images among all classes so far",
    "local": "cross-entropy of real images among the new classes only",
    "head": "cross-entropy among all classes, of real and synthetic images; trains the classifier, not the network",
    "hard": "distance to the old model's logits on synthetic images: keeps the old classes",
    "relational": "angles between features of real images, compared with the old model's: keeps their geometry",
    "balanced": "cross-entropy with weights that make every class count the same",
    "distillation": "distance to the old model's softened answers",
    "features": "distance to the old model's features",
    "prototypes": "cross-entropy of noisy class means of old classes",
    "answers": "distance to the old model's logits",
    "real": "distillation of the old model's answers on real images",
    "generated": "distillation of the old model's answers on synthetic images",
    "joint": "cross-entropy over classes and rotations",
    "plain": "cross-entropy of images as they are",
    "aggregation": "agreement of the plain head with the mean over an image's rotations",
}
INVERSION = {
    "features": "distance of a block's output from what it should be",
    "statistics": "distance of the activations' mean and variance from BatchNorm's",
    "input": "distance of a block's input from the statistics kept of it",
    "prior": "how improbable the activations are under the remembered covariance",
    "labels": "cross-entropy of the class the image is to show",
    "image": "squared differences of neighbouring pixels",
    "variation": "differences of neighbouring pixels",
    "norm": "size of the pixels",
    "confidence": "how unsure the old model is of the generated images",
    "balance": "how unevenly generated images fall on the old classes",
    "smoothness": "difference between an image and its blurred copy",
    "loss": "the sum of all, each with its weight: what is minimised",
}
STAGES = {
    "prepare": "the network and the memory are made ready",
    "dream": "synthetic images of the old classes are made",
    "first task": "ordinary training on the first task",
    "train": "training on a later task",
    "adapters": "adapters in a transformer learn",
    "prompts": "prompts of a transformer learn",
    "adapt": "a map from old features to new ones is learned",
    "drift": "a matrix that follows the features is learned",
    "balance the heads": "classifiers learn from draws of all classes",
    "newest classifier": "only the classifier of the new classes learns",
    "last block": "it and the last block of the network learn",
    "network": "everything learns",
    "balance the head": "classifier rebalancing: only the classifier learns, every class with the same weight",
    "adapters and head": "small added layers and the classifier learn",
    "generator and critic": "the network that generates images learns",
    "last block and head": "the last block and the classifier learn",
    "remember": "statistics of the task are measured and merged into the memory",
    "evaluate": "all tasks so far are tested",
}


def explained(words: dict[str, str], used: Iterable[str]) -> dict[str, str]:
    """Those of the words that are used, with what they mean."""
    names = set(used)
    return {word: meaning for word, meaning in words.items() if word in names}
