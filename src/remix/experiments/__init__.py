"""Runs: dreams from a saved model, statistics of a network, and the figures that show them."""
