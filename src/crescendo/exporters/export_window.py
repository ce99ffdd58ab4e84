"""Which part of a recording is exported, and at which wall-clock time did it run?

The measure phase: other tools warm up in a separate run, and treat every row as a result. Converts the clock
of the host that wrote a row into wall-clock time. Reads only the manifest.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from crescendo.model.errors import ConfigError
from crescendo.record.manifest import PeerRecord
from crescendo.record.reader import Recording
from crescendo.record.timeline import SECOND_NS, RunTimeline


@dataclass(frozen=True)
class ExportWindow:
    """From `start_ns` to before `end_ns`, on the clock of the peer that wrote the rows."""

    start_ns: int
    end_ns: int
    realtime_offset_ns: int

    def epoch_us(self, t_ns: int) -> int:
        return (t_ns + self.realtime_offset_ns) // 1000

    def stamp(self, t_ns: int) -> str:
        """Date and time as in Maestro's CSV files, in UTC: they have no time zone field."""
        return datetime.fromtimestamp((t_ns + self.realtime_offset_ns) // SECOND_NS, UTC).strftime("%Y-%m-%d %H:%M:%S")


def window_of(recording: Recording, peer: PeerRecord) -> ExportWindow:
    manifest = recording.manifest
    measure = RunTimeline.of(manifest.phases).measure
    if measure is None:
        raise ConfigError(f"{recording.path}: has no measure phase, so there is no result to export")
    clocks = {clock.host: clock for clock in manifest.clocks}
    clock = clocks.get(peer.host) or next(iter(manifest.clocks), None)
    if clock is None:
        raise ConfigError(f"{recording.path}: its manifest lists no clock, so the wall-clock time is unknown")
    # The phases are on the conductor's clock, the rows on the peer's own.
    return ExportWindow(measure.start_ns - clock.offset_ns, measure.end_ns - clock.offset_ns, clock.realtime_offset_ns)
