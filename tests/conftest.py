"""Hypothesis without its stopwatch: on a busy machine a slow example is no failure."""

from hypothesis import settings

settings.register_profile("busy-machine", deadline=None)
settings.load_profile("busy-machine")
