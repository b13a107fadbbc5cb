"""Losses, metrics, training stages, replay, the learner and its file."""

from remix.learning.model_file import Model, load_model, save_model

__all__ = ["Model", "load_model", "save_model"]
