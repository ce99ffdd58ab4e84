"""A real browser for the pages of the web server."""

from playwright.sync_api import expect

from chromium_browser import chromium

__all__ = ["chromium"]

expect.set_options(timeout=60_000)  # a busy machine draws a chart late, and nothing here is about how late
