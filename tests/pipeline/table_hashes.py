"""What do the tables of a run hold, however they are split into files?"""

import hashlib
from pathlib import Path

import pyarrow.parquet as pq


def hashes(tables: Path, *, without: tuple[str, ...] = ()) -> dict[str, str]:
    """Table -> hash of its sorted rows. Numbers count to the last bit. Columns with these endings are left out."""
    found = {}
    for table in sorted(tables.iterdir()):
        rows = [
            repr(sorted((name, value) for name, value in row.items() if not name.endswith(without)))
            for file in table.glob("*.parquet")
            for row in pq.ParquetFile(file).read().to_pylist()
        ]
        found[table.name] = hashlib.sha256("\n".join(sorted(rows)).encode()).hexdigest()
    return found
