"""How does a recording survive a power cut?

Until it is synced, the content of a file, its name and a rename may reach the disk in any order, or not at all.
What follows relies on what came before: the content of a file is synced before its final name, and its name before any
document that mentions it. Syncing waits for the disk, so the load does it in the background.
"""

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Wait until the content of a file is on disk, or the names in a directory."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: Path, *, durable: bool = True) -> None:
    """Create a directory and its parents, with their names on disk; it may exist."""
    if path.is_dir():
        return
    make_directory(path.parent, durable=durable)
    path.mkdir(exist_ok=True)
    if durable:
        sync(path.parent)


def publish(temporary: Path, path: Path, *, durable: bool = True) -> None:
    """Give a complete file its final name in the same directory. After a power cut it has its content, or no name."""
    if durable:
        sync(temporary)
    temporary.replace(path)
    if durable:
        sync(path.parent)


def sync_tree(directory: Path) -> None:
    """Everything in a directory, and its own name."""
    for path in sorted(directory.rglob("*")):
        sync(path)
    sync(directory)
    sync(directory.parent)
