"""Fixtures of a small network that has seen data."""

from narrow import generator, images, network, shared_network  # noqa: F401
