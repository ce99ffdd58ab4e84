"""Stages files in its own process: `python staging.py FORMAT DIRECTORY FOLDER`. Prints faults and memory as JSON."""

import json
import re
import sys
from pathlib import Path

from crescendo.importers.format import UnpackLimits
from crescendo.importers.registry import format_of
from crescendo.importers.sources import find_files, stage_files


def main(format_name: str, directory: Path, folder: Path) -> None:
    source_format = format_of(format_name)
    Path("/proc/self/clear_refs").write_text("5")  # importing may have needed more than what is measured here
    before = memory_kib("VmRSS")
    found, _ = find_files([directory], source_format)
    sources = stage_files(found, folder, UnpackLimits())
    grown = (memory_kib("VmHWM") - before) * 1024
    results = {source.path.name: (source.refused, source.fault) for source in sources}
    print(json.dumps({"sources": results, "grown_bytes": grown}))


def memory_kib(name: str) -> int:
    """The resident memory of this process: VmRSS now, VmHWM at most since it was cleared."""
    found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
