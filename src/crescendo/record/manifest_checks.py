"""Can a manifest be used, even if somebody else wrote it?

Limits the size of its fields before they are decoded, so that a small file cannot become a large object, and then the
values that others allocate memory for or iterate over. Judges the text alone: opens no file that the manifest names.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct, field

if TYPE_CHECKING:
    from crescendo.record.manifest import Manifest

MAX_MANIFEST_BYTES = 256 * 2**20
"""About a million parts: ten peers for ten days."""

_MAX_DEPTH = 32
_MAX_FIELD_BYTES = {"files": MAX_MANIFEST_BYTES, "connections": 64 * 2**20, "system": 64 * 2**20, "command": 16 * 2**20}
_MAX_OTHER_FIELD_BYTES = 4 * 2**20
_FREE_FORM = {"experiment": 200_000, "host": 10_000, "versions": 10_000, "system": 1_000_000, "lab": 100_000}
"""The fields whose content this version does not know, and how many values they may have."""


class _HostFacts(Struct):
    """The facts about the host that others compute with."""

    name: str = ""
    processor: str = ""
    cores: int = 0
    memory_bytes: int = 0


class _SystemFacts(Struct):
    """The facts about the system that are shown one by one."""

    kind: str = ""
    commands: dict[str, list[str]] = field(default_factory=dict)
    configuration: dict[str, str] = field(default_factory=dict)


def check_fields(fields: Mapping[str, Raw]) -> None:
    """Reject fields that are too large to decode. Raises ValueError."""
    for name, raw in fields.items():
        limit = _MAX_FIELD_BYTES.get(name, _MAX_OTHER_FIELD_BYTES)
        if (found := memoryview(raw).nbytes) > limit:
            raise ValueError(f"{name} has {found:,} bytes, at most {limit:,} are read")
        # Every value follows one of these. Those inside texts count too: the limits are generous.
        if name in _FREE_FORM and sum(map(bytes(raw).count, b"[{,")) > _FREE_FORM[name]:
            raise ValueError(f"{name} has more than {_FREE_FORM[name]:,} values")


def check_manifest(manifest: "Manifest") -> None:
    """Reject values that no run writes. Raises ValueError."""
    for name in _FREE_FORM:
        if _is_deep(getattr(manifest, name)):
            raise ValueError(f"{name} is nested more than {_MAX_DEPTH} levels deep")
    msgspec.convert(manifest.host, _HostFacts)
    msgspec.convert(manifest.system, _SystemFacts)
    known = {(connection.role, connection.id) for connection in manifest.connections}
    if len(known) < len(manifest.connections):
        raise ValueError("two connections of one role have the same number")
    if any(phase.end_ns < phase.start_ns for phase in manifest.phases):
        raise ValueError("a phase ends before it starts")


def _is_deep(value: Any) -> bool:
    """Whether a value is nested too deeply. Level by level, because recursion would be what it guards against."""
    level = [value]
    for _ in range(_MAX_DEPTH):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True
