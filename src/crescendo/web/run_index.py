"""Which runs are there, without opening every one of them for every page?

A SQLite file beside the runs. The runs are the truth: whatever changed on disk since the last look is read again, what
is gone is forgotten, and the file may be deleted at any time. Notes and tags are documents on disk as well.
"""

import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from crescendo.history.fingerprints import fingerprint
from crescendo.model.errors import ConfigError
from crescendo.record.documents import read_or_none, write_document
from crescendo.record.manifest import MANIFEST, read_manifest
from crescendo.record.run_metrics import summary_value
from crescendo.record.summary import SUMMARY, read_summary
from crescendo.web.web_directory import NAME, WebDirectory, child_of

STRIP = 10
_AGAIN_S = 1.0
_VERSION = 1
_COLUMNS = ("name", "experiment", "started_ns", "state", "outcome", "system", "rate", "p50_ns", "p99_ns", "lost",
            "reason", "fingerprint", "modified_ns")  # fmt: skip


class RunNote(Struct, frozen=True):
    """What a person wrote about a run."""

    text: Annotated[str, Meta(max_length=20_000)] = ""
    tags: Annotated[list[Annotated[str, Meta(pattern=r"^[\w.:-]{1,40}$")]], Meta(max_length=20)] = []


class RunIndex:
    """The runs of a directory. Used from several threads."""

    def __init__(self, directory: WebDirectory, *, rebuild: bool = False) -> None:
        self._directory = directory
        self._path = directory.own / "index.sqlite"
        self._lock = threading.Lock()
        self._looked_s = 0.0
        if rebuild:
            for suffix in ("", "-wal", "-shm"):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
        try:
            self._create()
        except sqlite3.DatabaseError:  # damaged, or not ours: everything in it can be computed again
            self._path.unlink(missing_ok=True)
            self._create()

    def _create(self) -> None:
        with self._connected() as database:
            database.execute("PRAGMA journal_mode=WAL")
            if database.execute("PRAGMA user_version").fetchone()[0] != _VERSION:
                database.execute("DROP TABLE IF EXISTS runs")
            database.execute(f"CREATE TABLE IF NOT EXISTS runs ({', '.join(_COLUMNS)}, PRIMARY KEY (name))")
            database.execute("CREATE INDEX IF NOT EXISTS by_experiment ON runs (experiment, started_ns)")
            database.execute(f"PRAGMA user_version={_VERSION}")

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path, timeout=10)) as database:
            database.row_factory = sqlite3.Row
            with database:
                yield database

    def refresh(self, *, at_once: bool = False) -> None:
        """Read what changed on disk since the last look, which a second may lie behind."""
        with self._lock:
            if not at_once and time.monotonic() - self._looked_s < _AGAIN_S:
                return
            with self._connected() as database:
                known = dict(database.execute("SELECT name, modified_ns FROM runs").fetchall())
                found = dict(self._on_disk())
                changed = [name for name, modified_ns in found.items() if known.get(name) != modified_ns]
                gone = [(name,) for name in known if name not in found]
                database.executemany("DELETE FROM runs WHERE name = ?", gone)
                marks = ", ".join("?" * len(_COLUMNS))
                database.executemany(
                    f"INSERT OR REPLACE INTO runs VALUES ({marks})",  # noqa: S608 - only question marks
                    [row for name in changed if (row := self._row(name, found[name])) is not None],
                )
            self._looked_s = time.monotonic()

    def _on_disk(self) -> Iterable[tuple[str, int]]:
        for path in self._directory.runs.iterdir():
            if NAME.fullmatch(path.name) is None or path.is_symlink():
                continue  # links such as `last` point at runs that are listed themselves
            try:
                modified_ns = (path / MANIFEST).stat().st_mtime_ns
            except OSError:
                continue
            with suppress(OSError):
                modified_ns += (path / SUMMARY).stat().st_mtime_ns
            yield path.name, modified_ns

    def _row(self, name: str, modified_ns: int) -> tuple[Any, ...] | None:
        run_dir = self._directory.runs / name
        try:
            manifest = read_manifest(run_dir)
        except ConfigError:
            return None
        system = manifest.experiment.get("system") or {}
        subject = str(system.get("kind") or system.get("url") or "network") if isinstance(system, dict) else ""
        values: dict[str, float | None] = {}
        outcome, reason = "", manifest.reason
        try:
            summary = read_summary(run_dir)
            outcome = summary.verdict.outcome.value
            values = {key: summary_value(summary, key) for key in ("rate", "response_p50", "response_p99", "lost")}
        except ConfigError as err:
            reason = reason or str(err)
        numbers = (values.get("rate"), values.get("response_p50"), values.get("response_p99"), values.get("lost"))
        return (
            name, str(manifest.experiment.get("name", "")), manifest.started_ns, manifest.state.value, outcome, subject,
            *numbers, reason, fingerprint(manifest), modified_ns,
        )  # fmt: skip

    def runs(self, *, experiment: str = "", outcome: str = "", limit: int = 2000) -> list[dict[str, Any]]:
        """The newest first."""
        self.refresh()
        with self._connected() as database:
            rows = database.execute(
                "SELECT * FROM runs WHERE (? = '' OR experiment = ?) AND (? = '' OR outcome = ?) "
                "ORDER BY started_ns DESC, name DESC LIMIT ?",
                (experiment, experiment, outcome, outcome, limit),
            ).fetchall()
        return [dict(row) for row in rows]

    def strips(self) -> dict[str, list[dict[str, Any]]]:
        """experiment -> its last runs, the oldest first."""
        self.refresh()
        with self._connected() as database:
            rows = database.execute(
                "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY experiment ORDER BY started_ns DESC, "
                "name DESC) AS place FROM runs) WHERE place <= ? ORDER BY place DESC",
                (STRIP,),
            ).fetchall()
        found: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            found.setdefault(row["experiment"], []).append(dict(row))
        return found

    def counts(self) -> dict[str, int]:
        """outcome -> how many runs."""
        self.refresh()
        with self._connected() as database:
            return dict(database.execute("SELECT outcome, count(*) FROM runs GROUP BY outcome").fetchall())

    def note(self, run: str) -> RunNote:
        path = child_of(self._directory.notes, run, "run", ".json")
        return read_or_none(path, RunNote) or RunNote()

    def set_note(self, run: str, note: RunNote) -> None:
        self._directory.run(run)
        write_document(child_of(self._directory.notes, run, "run", ".json"), note, mode=0o600)

    def tags(self) -> dict[str, list[str]]:
        """run -> its tags, of those that have any."""
        notes = (
            (path.stem, read_or_none(path, RunNote)) for path in sorted(Path(self._directory.notes).glob("*.json"))
        )
        return {name: note.tags for name, note in notes if note is not None and note.tags}
