"""`remix inspect`."""

from __future__ import annotations

__all__ = ["inspect"]


def inspect(model: str, *, json: bool = False, tensors: bool = False) -> None:
    """Everything that a model file holds, by kind and bytes; its classes and when each was learned; that no image is.

    Args:
        model: Model file.
        json: Print one JSON object, with every tensor.
        tensors: List every tensor with its kind and shape.

    Examples:
        remix inspect photos.remix
        remix inspect photos.remix --tensors
    """
    from remix.deploy.inspection_command import inspect_command

    inspect_command(model, json=json, tensors=tensors)
