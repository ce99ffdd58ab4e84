"""What do the small tables of a run contain?

Reads one table at a time, on request, as typed rows. A missing table is empty. The modules in `sections` know what the
rows mean.
"""

from pathlib import Path

from crescendo.record.table_reader import rows
from crescendo.record.table_types import RowT, Table


class SmallTables:
    """The tables of one run that are small enough to read whole."""

    def __init__(self, run_dir: Path, origin_ns: int) -> None:
        self._run_dir = run_dir
        self._origin_ns = origin_ns

    def rows(self, table: Table[RowT]) -> list[RowT]:
        """All rows of a table. Raises ConfigError if it exists but cannot be read."""
        return rows(self._run_dir, table)

    def second(self, t_ns: int) -> float:
        """Seconds since the start of the first phase."""
        return (t_ns - self._origin_ns) / 1e9
