"""REMIX: teach an image classifier new classes without the data of the old ones."""

from remix._version import __version__

__all__ = ["__version__"]
