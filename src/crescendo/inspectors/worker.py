"""How does an inspector process run, from its first note to its last?

It prepares by inspecting once, to check that the system can be inspected at all, and watches from the start of the run
until it is stopped. Decides nothing.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import UNSET

from crescendo.control.notes import Statistics
from crescendo.control.peer import Peer
from crescendo.control.peer_loop import PeerLoop
from crescendo.inspectors.assignment import InspectorAssignment
from crescendo.inspectors.base import InspectionTarget
from crescendo.inspectors.inspection_schedule import Watch
from crescendo.inspectors.registry import inspector_of
from crescendo.model.errors import LostError, PeerError
from crescendo.model.peer_statistics import inspector_statistics
from crescendo.model.url_files import url_with_given_files
from crescendo.record.inputs import write_given
from crescendo.record.writer import Recorder

FIRST_INSPECTION_S = 10.0
LAST_INSPECTION_S = 1.0
_REPORT_NS = 10**9


class InspectorWorker(PeerLoop):
    """One inspector process."""

    request_timeout_s = 0.02

    def __init__(self, peer: Peer, data: Path, inputs: Mapping[str, str]) -> None:
        """`inputs`: the files that its URLs may name, and where they are."""
        super().__init__(peer, data)
        self._inputs = inputs
        self._recorder: Recorder | None = None
        self._watch: Watch | None = None
        self._t0_ns: int | None = None
        self._reported_ns = 0

    def _prepare(self, assignment: dict[str, Any]) -> None:
        given = InspectorAssignment.from_payload(assignment)
        files = {**self._inputs, **write_given(self._data, self._peer.identity.id, given.inputs)}
        endpoints = {name: url_with_given_files(url, files) for name, url in given.endpoints.items()}
        inspector = inspector_of(given.kind)(InspectionTarget(endpoints, given.pid))
        name = self._peer.identity.id
        self._recorder = Recorder(self._data, name, durable=given.durable)
        self._watch = Watch(inspector, name, given.every_ns, self._recorder)
        end_s = time.monotonic() + FIRST_INSPECTION_S
        failure = self._watch.inspect_once(FIRST_INSPECTION_S)
        remaining_s = end_s - time.monotonic()
        if failure and remaining_s > 0:  # a management interface may load its code at its first request
            failure = self._watch.inspect_once(remaining_s)
        if failure:
            raise PeerError(f"{name}: {failure}")

    def _start(self, t0_ns: int) -> None:
        self._t0_ns = t0_ns

    def _idle(self) -> None:
        now_ns = time.monotonic_ns()
        if self._watch is None or self._recorder is None or self._t0_ns is None or now_ns < self._t0_ns:
            return
        try:
            self._watch.step(self._t0_ns, now_ns)
            if now_ns - self._reported_ns >= _REPORT_NS:
                self._reported_ns = now_ns
                self._recorder.tick(now_ns)
                self._count(self._watch)
                self._peer.report(self._statistics)
        except LostError as err:
            self._count(self._watch)
            self._watch = None
            self._report_failure(err)

    def _count(self, watch: Watch) -> None:
        measured = inspector_statistics(
            looks=watch.inspections,
            failed_looks=watch.failed,
            missed_looks=watch.missed,
            cpu_seconds=time.process_time(),
        )
        self._statistics = Statistics(time.monotonic_ns(), values=measured, gauges=watch.gauges or UNSET)

    def _flush(self) -> None:
        if self._recorder is not None:
            self._recorder.flush()

    def _shut_down(self) -> None:
        watch, self._watch = self._watch, None
        recorder, self._recorder = self._recorder, None
        if watch is not None:
            self._count(watch)
            watch.close(LAST_INSPECTION_S)
        if recorder is not None:
            recorder.close()
