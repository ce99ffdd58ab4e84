"""Live tables: what a recording says while it grows."""
