"""Where can the account that PostgreSQL runs as keep its data?

In the directory of the instance, or, where root has closed that to others, in one outside that the instance has made
for it and named in a file. Creates neither.
"""

import os
from pathlib import Path

from crescendo.mlmq.postgres.cluster import UNPRIVILEGED
from crescendo.systems.unix_account import named_account, unreachable_parent


def reachable_data(directory: Path, outside_dir_file: str) -> Path:
    """Nobody but us can have created it: both are in directories that belong to us."""
    if os.geteuid() == 0 and unreachable_parent(named_account(UNPRIVILEGED), directory) is not None:
        return Path(Path(outside_dir_file).read_text(encoding="utf-8")) / directory.name
    return directory
