"""Breaks what a run measures, on purpose and on time, and undoes it, whatever ends the run."""
