"""Everything that reads a recording without Spark, and a list of the files that were opened meanwhile.

Also a program: `python hostile_readers.py CASES` reads each directory in CASES and prints, as JSON, the error of each
reader, the files outside the recording that were opened, and by how much the memory of the process grew at most.
"""

import json
import os
import resource
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from crescendo.exporters.maestro.export import export_maestro
from crescendo.model.errors import ConfigError
from crescendo.pipeline.compare.comparability import comparison_notes
from crescendo.pipeline.compare.runs import run_group
from crescendo.record.reader import open_recording
from crescendo.record.recorded_experiment import experiment_of, offered_rate
from crescendo.report.page import render_report
from crescendo.run.ceiling import ceiling_percent
from crescendo.run.recorded_run import RecordedRun

_opened: list[str] | None = None
_LIBRARIES = [
    *sysconfig.get_paths().values(),
    f"{sys.base_prefix}/lib",
    "/usr/share/zoneinfo",
    str(Path(__file__).parents[2] / "src"),
]


def _listen(event: str, arguments: tuple[object, ...]) -> None:
    if _opened is not None and event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
        _opened.append(os.fsdecode(arguments[0]))


sys.addaudithook(_listen)


@contextmanager
def opened_outside(*inside: Path) -> Iterator[list[str]]:
    """Collects the files that are opened outside these directories; those of Python and its libraries do not count."""
    global _opened  # noqa: PLW0603 - an audit hook cannot be removed
    found: list[str] = []
    _opened = []
    try:
        yield found
    finally:
        allowed = [os.path.realpath(path) for path in (*inside, *_LIBRARIES, os.environ["XDG_STATE_HOME"])]
        # A name without a directory that is not here is relative to an open directory: rmtree works like that.
        absolute = [path for path in _opened if "/" in path or os.path.lexists(path)]
        found += [path for path in absolute if not os.path.realpath(path).startswith(tuple(allowed))]
        _opened = None


def _export(run_dir: Path) -> None:
    with tempfile.TemporaryDirectory(dir=run_dir) as out:
        written = export_maestro(run_dir, Path(out) / "maestro")
        assert all(path.is_relative_to(out) for path in written)


def _compare(run_dir: Path) -> None:
    side = run_group(str(run_dir), run_dir / "lake")
    comparison_notes(side, side)


READERS: dict[str, Callable[[Path], object]] = {
    "open": open_recording,
    "experiment": lambda run_dir: experiment_of(open_recording(run_dir).manifest),
    "offered": lambda run_dir: offered_rate(open_recording(run_dir).manifest),
    "ceiling": lambda run_dir: ceiling_percent(run_dir, open_recording(run_dir).manifest),
    "messages": lambda run_dir: RecordedRun(run_dir).messages().read_all(),
    "tables": lambda run_dir: [RecordedRun(run_dir).table(name) for name in RecordedRun(run_dir).tables],
    "export": _export,
    "report": render_report,
    "compare": _compare,
}


def errors_of(run_dir: Path) -> dict[str, str]:
    """Reader -> its error, where it has one. Any other exception than ConfigError is a fault of ours."""
    errors = {}
    for name, read in READERS.items():
        try:
            read(run_dir)
        except ConfigError as err:
            errors[name] = str(err)
    return errors


def main(cases: Path) -> None:
    results = {}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for run_dir in sorted(cases.iterdir()):
        with opened_outside(run_dir) as outside:
            errors = errors_of(run_dir)
        results[run_dir.name] = {"errors": errors, "outside": outside}
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    print(json.dumps({"cases": results, "grown_bytes": grown}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
