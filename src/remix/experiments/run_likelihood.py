"""How much likelier the Laplace covariances make the activations of a network than independent coordinates would."""

from __future__ import annotations

from typing import Any

from remix.statistics import Memory

__all__ = ["layer_likelihoods"]


def layer_likelihoods(memory: Memory) -> list[dict[str, Any]]:
    """For every layer whose covariance was just fitted, in nats per coordinate, as plain JSON.

    ``gain`` is that over the diagonal Gaussian on what was fitted to, so in-sample; ``validation_gain`` that on rows
    left out of the fit, or None: a fit to the moments of several tasks has no rows to leave out.
    """
    found = []
    for key, layer in memory.layers.items():
        report = layer.normal.report if layer.normal is not None else None
        if report is not None:
            found.append(
                {
                    "layer": key,
                    "coordinates": report.dim,
                    "samples": report.samples,
                    "log_likelihood": report.train_log_likelihood,
                    "diagonal": report.diagonal_train_log_likelihood,
                    "gain": report.train_gain,
                    "validation_gain": report.validation_gain,
                }
            )
    return found
