"""Presets, runs, dreams, and the figures and tables that show them."""
