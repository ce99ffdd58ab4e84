"""Which run does a tag belong to?

Every message carries the tag of its run, and every manifest names it. Looks only at the newest recordings beside the
given one, and reads only two fields of each: a directory of runs may be large, and what is in it may be hostile.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from crescendo.record.contained_files import read_contained
from crescendo.record.manifest import MANIFEST
from crescendo.record.manifest_checks import MAX_MANIFEST_BYTES

MAX_RUNS = 500


class _Tagged(Struct):
    run: str = ""
    tag: int = 0


def runs_of_tags(run_dir: Path, tags: Iterable[int]) -> dict[int, str]:
    """Tag -> name of the run, of the recordings beside this one; without those that nobody knows here."""
    wanted = set(tags)
    found: dict[int, str] = {}
    try:
        beside = sorted(run_dir.parent.iterdir(), key=_modified_ns, reverse=True)[:MAX_RUNS] if wanted else []
    except OSError:
        return found
    for directory in beside:
        if not wanted - found.keys():
            break
        if directory.is_symlink():
            continue  # such as `last`
        try:
            tagged = msgspec.json.decode(read_contained(directory, MANIFEST, MAX_MANIFEST_BYTES), type=_Tagged)
        except (OSError, ValueError, msgspec.MsgspecError):
            continue
        if tagged.tag in wanted:
            found.setdefault(tagged.tag, directory.name)
    return found


def _modified_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
