"""Devices by name, and models on them."""

from __future__ import annotations

from dataclasses import replace

import torch

from remix.learning.model_file import Model

__all__ = ["as_device", "on_device"]


def as_device(name: str) -> torch.device:
    """A device by name; "auto" is the accelerator if there is one.

    Raises:
        ValueError: for a device that is not there.

    """
    if name == "auto":
        for kind, available in (("cuda", torch.cuda.is_available), ("mps", torch.backends.mps.is_available)):
            if available():
                return torch.device(kind)
        return torch.device("cpu")
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ValueError(f"--device {name} cannot be used: {str(error).splitlines()[0]}") from error


def on_device(model: Model, device: torch.device) -> Model:
    """The same model on another device."""
    memory = None if model.memory is None else model.memory.to(device)
    return replace(model, classifier=model.classifier.to(device), memory=memory)
