"""In which environment was this measured?

Host facts, versions, the system, connections, phases, clocks and files of a run as lists of name and text, from the
manifest alone. The manifest contains no secrets, so nothing has to be redacted here.
"""

from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml

from crescendo.model.units import format_ns
from crescendo.record.manifest import Manifest, PartRecord, State
from crescendo.record.observed import host_facts_of
from crescendo.record.reader import journalled_parts
from crescendo.record.timeline import RunTimeline
from crescendo.report import formats
from crescendo.report.sections.evidence import Grid, phase_name

Facts = list[tuple[str, str]]

_LONG = {"commands", "configuration", "nodes", "links", "variables"}


@dataclass(frozen=True)
class Environment:
    """Everything that must be the same to repeat the run."""

    host: Facts
    versions: Facts
    system: Facts
    configuration: Facts
    run: Facts
    connections: Grid
    phases: Grid
    clocks: Grid
    files: Grid
    recording: str
    experiment: str


def environment(run_dir: Path, manifest: Manifest, sent: int) -> Environment:
    # Only a sealed manifest lists its parts; until then the journals do.
    parts = manifest.files if manifest.state is State.SEALED else list(journalled_parts(run_dir))
    return Environment(
        host=_facts(host_facts_of(run_dir, manifest)),
        versions=_facts(manifest.versions),
        system=_facts({key: value for key, value in manifest.system.items() if key not in _LONG}),
        configuration=_configuration(manifest.system),
        run=[
            ("run", manifest.run),
            ("started", formats.moment(manifest.started_ns)),
            ("recording", f"{manifest.state}{': ' + manifest.reason if manifest.reason else ''}"),
        ],
        connections=_connections(manifest),
        phases=_phases(manifest),
        clocks=_clocks(manifest),
        files=_files(parts),
        recording=_recording_sentence(parts, sent),
        experiment=yaml.safe_dump(manifest.experiment, sort_keys=False, allow_unicode=True),
    )


def _configuration(system: dict[str, Any]) -> Facts:
    """The commands and the configuration files with which the system was started."""
    commands = [(f"command of {name}", " ".join(arguments)) for name, arguments in system.get("commands", {}).items()]
    return commands + list(system.get("configuration", {}).items())


def _facts(values: dict[str, Any]) -> Facts:
    return [(formats.label(key), formats.fact(key, value)) for key, value in values.items()]


def _connections(manifest: Manifest) -> Grid:
    """Counted, not listed: a run may have tens of thousands."""
    keys = sorted((item.group, item.role, item.peer, item.address) for item in manifest.connections)
    rows = [[*key, formats.count(len(list(same)))] for key, same in groupby(keys)]
    return Grid(["Group", "Role", "Peer", "Address", "Connections"], rows, names=4)


def _phases(manifest: Manifest) -> Grid:
    origin_ns = RunTimeline.of(manifest.phases).origin_ns
    rows = []
    for phase in manifest.phases:
        start_ns, length_ns = phase.start_ns - origin_ns, phase.end_ns - phase.start_ns
        rows.append([phase_name(phase.name), format_ns(start_ns) if start_ns else "0 s", format_ns(length_ns)])
    return Grid(["Phase", "starts at", "duration"], rows)


def _clocks(manifest: Manifest) -> Grid:
    rows = [
        [clock.host, format_ns(clock.offset_ns), f"{clock.drift_ppb:,.3g} ppb", format_ns(clock.bound_ns)]
        for clock in manifest.clocks
    ]
    return Grid(["Host", "offset", "drift", "error bound"], rows)


def _files(parts: list[PartRecord]) -> Grid:
    rows = []
    for table in sorted({part.table for part in parts}):
        mine = [part for part in parts if part.table == table]
        numbers = [len(mine), sum(part.rows for part in mine)]
        rows.append([table, *map(formats.count, numbers), formats.octets(sum(part.octets for part in mine))])
    return Grid(["Table", "files", "rows", "size"], rows)


def _recording_sentence(parts: list[PartRecord], sent: int) -> str:
    if not parts:
        return "No complete files."
    size = sum(part.octets for part in parts)
    rows = sum(part.rows for part in parts)
    text = f"{formats.plural(len(parts), 'file')}, {formats.plural(rows, 'row')}, {formats.octets(size)}"
    return f"{text}; {size / sent:.1f} bytes per message." if sent else f"{text}."
