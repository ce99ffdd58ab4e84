"""Live tables: rates and latencies of a run in progress, from its growing recording."""
