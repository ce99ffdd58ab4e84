"""Crescendo: a performance laboratory for message-oriented middleware."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("crescendo-lab")
except PackageNotFoundError:  # running from a source tree that was never installed
    __version__ = "0.0.0"
