"""Measurements. Every claim is a ratio of two sides taken in one run; absolute numbers are printed, never asserted."""
