"""Stages files in its own process: `python staging.py FORMAT DIRECTORY FOLDER`. Prints faults and memory as JSON."""

import json
import resource
import sys
from pathlib import Path

from crescendo.importers.format import UnpackLimits
from crescendo.importers.registry import format_of
from crescendo.importers.sources import find_files, stage_files


def main(format_name: str, directory: Path, folder: Path) -> None:
    source_format = format_of(format_name)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found, _ = find_files([directory], source_format)
    sources = stage_files(found, folder, UnpackLimits())
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    results = {source.path.name: (source.refused, source.fault) for source in sources}
    print(json.dumps({"sources": results, "grown_bytes": grown}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
