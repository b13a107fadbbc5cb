"""Presets, runs and their comparison."""
