"""The verb `export`: a recording in the format of another tool."""

from pathlib import Path

from crescendo.exporters.registry import exporter_of


def export(form: str, run_dir: Path, out: Path) -> int:
    for path in exporter_of(form)(run_dir, out):
        print(path)
    return 0
