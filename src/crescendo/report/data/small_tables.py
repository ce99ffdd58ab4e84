"""What do the small tables of a run contain?

Reads one table at a time, on request. A missing table is empty. The modules in `sections` know what the rows mean.
"""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from crescendo.model.errors import ConfigError
from crescendo.record.summary import TABLES_DIR

Rows = list[dict[str, Any]]


class SmallTables:
    """The tables of one run that are small enough to read whole."""

    def __init__(self, run_dir: Path, origin_ns: int) -> None:
        self._tables = run_dir / TABLES_DIR
        self._origin_ns = origin_ns

    def rows(self, name: str) -> Rows:
        """All rows of a table. Raises ConfigError if it exists but cannot be read."""
        files = [str(file) for file in sorted((self._tables / name).glob("*.parquet"))]
        if not files:
            return []
        try:
            rows: Rows = ds.dataset(files, format="parquet").to_table().to_pylist()
        except (pa.ArrowException, OSError) as err:
            raise ConfigError(f"{self._tables / name}: cannot be read, analyse the run again: {err}") from err
        return rows

    def second(self, t_ns: int) -> float:
        """Seconds since the start of the first phase."""
        return (t_ns - self._origin_ns) / 1e9
