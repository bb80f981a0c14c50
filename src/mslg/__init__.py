"""Train on labels that are partly wrong."""

__version__ = "0.1.0"
