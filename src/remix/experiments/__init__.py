"""Presets, runs and their comparison, dreams, and the figures and tables that show them."""
