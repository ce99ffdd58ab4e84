"""What do the small tables of a run hold, and what is a section of the page made of?

Reads one table at a time, when it is asked for; one that is not there is an empty one. What the rows mean is known to
the modules that make sections of them.
"""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from crescendo.model.errors import ConfigError
from crescendo.record.summary import TABLES_DIR

Rows = list[dict[str, Any]]


class SmallTables:
    """The tables of one run that fit a page."""

    def __init__(self, run_dir: Path, origin_ns: int) -> None:
        self._tables = run_dir / TABLES_DIR
        self._origin_ns = origin_ns

    def rows(self, name: str) -> Rows:
        """Raises ConfigError when a table is there but cannot be read."""
        files = [str(file) for file in sorted((self._tables / name).glob("*.parquet"))]
        if not files:
            return []
        try:
            rows: Rows = ds.dataset(files, format="parquet").to_table().to_pylist()
        except (pa.ArrowException, OSError) as err:
            raise ConfigError(f"{self._tables / name}: cannot be read, analyse the run again: {err}") from err
        return rows

    def second(self, t_ns: int) -> float:
        """Seconds since the first phase began."""
        return (t_ns - self._origin_ns) / 1e9
