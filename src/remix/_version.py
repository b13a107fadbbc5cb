"""The version, in one place, importable without torch."""

__version__ = "0.1.0"
