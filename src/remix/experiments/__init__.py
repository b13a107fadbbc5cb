"""Presets, runs and their comparison; dreams of a saved model, statistics of a network, and figures."""
