"""Presets, runs and their comparison; dreams from a saved model, statistics of a network, and figures that show them."""
