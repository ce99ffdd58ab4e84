"""What could a disk hold after a power cut?

Watches a directory while a program writes to it and keeps, for each file and directory, what was last synced and what
changed since. Changes are found by looking at the directory, so no call of the program can escape. A power cut leaves
each change done, not done, or, for the content of a file, half done, in any combination: file systems promise nothing
else without a sync.
"""

import os
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

Names = dict[str, int]
"""A directory: the inode of each name in it."""

Decide = Callable[[int], int]
"""Of this many possibilities, the one that a power cut leaves: 0 is the old one."""

MAX_STATES, _DRAWN = 200, 30
"""If a power cut may leave more states than the first number, others are drawn."""


@dataclass
class Disk:
    """What is certainly on disk, and what may be: content of files and names in directories, by inode."""

    root: Path
    synced_files: dict[int, bytes] = field(default_factory=dict)
    files: dict[int, bytes] = field(default_factory=dict)
    synced_names: dict[int, Names] = field(default_factory=dict)
    names: dict[int, Names] = field(default_factory=dict)
    left_out: bool = False  # whether a power cut could leave too many states to rebuild each

    def look(self) -> None:
        self.names = {}
        for directory, _, files in os.walk(self.root):
            at = Path(directory)
            self.names[at.stat().st_ino] = {entry.name: entry.inode() for entry in os.scandir(at)}
            for name in files:
                self.files[(at / name).stat().st_ino] = (at / name).read_bytes()

    def sync(self, inode: int) -> None:
        if inode in self.names:
            self.synced_names[inode] = dict(self.names[inode])
        elif inode in self.files:
            self.synced_files[inode] = self.files[inode]

    def power_cuts(self, into: Path, choose: random.Random) -> Iterator[Path]:
        """Directories, one after the other, as a disk may hold them after a power cut now: all that are possible, or,
        if these are too many, the first, one with no change done, one with all, and others at random."""
        state: list[int] | None = []
        for number in range(MAX_STATES):
            decisions: list[tuple[int, int]] = []
            yield self._state(into / str(number), _replayed(state, decisions))
            state = _successor(decisions)
            if state is None:
                return
        self.left_out = True
        for number in range(_DRAWN):
            yield self._state(into / f"drawn-{number}", _drawn(number, choose))

    def _state(self, target: Path, decide: Decide) -> Path:
        self._rebuild(self.root.stat().st_ino, target, decide)
        return target

    def _rebuild(self, inode: int, target: Path, decide: Decide) -> None:
        target.mkdir(parents=True)
        old, new = self.synced_names.get(inode, {}), self.names.get(inode, {})
        for name in sorted(old.keys() | new.keys()):
            before, after = old.get(name), new.get(name)
            found = after if before == after or decide(2) else before
            if found is None:
                continue
            if found in self.names:
                self._rebuild(found, target / name, decide)
            else:
                (target / name).write_bytes(self._content(found, decide))

    def _content(self, inode: int, decide: Decide) -> bytes:
        synced, content = self.synced_files.get(inode, b""), self.files[inode]
        if synced == content:
            return content
        return (synced, content, content[: len(content) // 2])[decide(3)]


def _replayed(state: list[int], decisions: list[tuple[int, int]]) -> Decide:
    """Decides as this state says, then always for the first; keeps what was decided."""

    def decide(choices: int) -> int:
        at = len(decisions)
        decisions.append((state[at] if at < len(state) else 0, choices))
        return decisions[-1][0]

    return decide


def _successor(decisions: list[tuple[int, int]]) -> list[int] | None:
    """The next state in the order of counting; None after the last."""
    chosen = [choice for choice, _ in decisions]
    while decisions:
        choice, choices = decisions.pop()
        chosen.pop()
        if choice + 1 < choices:
            return [*chosen, choice + 1]
    return None


def _drawn(number: int, choose: random.Random) -> Decide:
    if number < 2:
        return lambda choices: number
    return lambda choices: choose.choice((0, 1, 1, choices - 1))


class Watched:
    """Calls back after every sync and every rename with the disk as it may be then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path, dropped: Callable[[Path], bool]) -> None:
        self.disk = Disk(root)
        self.disk.look()
        self.disk.sync(root.stat().st_ino)
        self.after: Callable[[], None] = lambda: None
        self.syncs: list[Path] = []
        lock, replace = threading.RLock(), os.replace

        def watched_fsync(descriptor: int) -> None:  # the real one would only cost time
            path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            with lock:
                self.disk.look()
                self.syncs.append(path)
                if not dropped(path):
                    self.disk.sync(os.fstat(descriptor).st_ino)
                self.after()

        def watched_replace(source: str, target: str) -> None:
            with lock:
                replace(source, target)
                self.disk.look()
                self.after()

        monkeypatch.setattr(os, "fsync", watched_fsync)
        monkeypatch.setattr(os, "replace", watched_replace)
        monkeypatch.setattr(Path, "replace", lambda path, target: watched_replace(str(path), str(target)))
