"""The network of a run."""

from __future__ import annotations

from typing import Any

from remix.experiments.config import RunConfig
from remix.networks import Backbone, seeded_backbone
from remix.support.settings import SettingError

__all__ = ["create_network", "network_options"]


def create_network(config: RunConfig) -> Backbone:
    """The backbone with the weights it begins with.

    Raises:
        SettingError: for a bad value of an option.

    """
    try:
        return seeded_backbone(config.network.backbone, config.seed, **network_options(config))
    except ValueError as error:
        raise SettingError(f"network.options: {error}") from error
    except TypeError as error:
        raise SettingError(
            f"network.options holds a value of the wrong kind: {config.network.options} ({error})"
        ) from error


def network_options(config: RunConfig) -> dict[str, Any]:
    """The options of the backbone; lists of a file are tuples here."""
    options = config.network.options
    return {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
