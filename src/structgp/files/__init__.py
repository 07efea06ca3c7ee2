"""Models in files: what they hold (`values`), what a file must satisfy (`rules`), its bytes (`container`)."""

from .model import load, save

__all__ = ["load", "save"]
