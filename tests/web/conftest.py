"""A real browser for the pages of the web server."""

from chromium_browser import chromium

__all__ = ["chromium"]
