"""How does Prometheus follow a run of the command line?

An HTTP server on the loopback interface that answers GET /metrics with the last sample of the run. It answers from
memory, so a scrape asks the run for nothing; between two samples, and when senders are done, it repeats the last rates
instead of falling to zero. Refuses every other path and method.
"""

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from crescendo.control.conductor.state import RunState, Stage
from crescendo.model.errors import ConfigError
from crescendo.record.metric_families import MetricFamily, exposition
from crescendo.run.live_sample import ROLES, live_families, sample
from crescendo.run.observer import RunObserver
from crescendo.run.result import RunResult

MEDIA = "application/openmetrics-text; version=1.0.0; charset=utf-8"
HOST = "127.0.0.1"
_SAMPLE_NS = 250_000_000
_STATES = ("starting", "running", "recorded")


class MetricsServer(RunObserver):
    """Serves what it observes. Use as a context manager around the runs."""

    def __init__(self, experiment: str, port: int) -> None:
        self._experiment = experiment
        self._sample: dict[str, Any] | None = None
        self._state = _STATES[0]
        self._next_ns = 0
        try:
            self._server = ThreadingHTTPServer((HOST, port), _handler(self))
        except OSError as err:
            raise ConfigError(
                f"--metrics {port}: cannot listen at {HOST}: {err.strerror}; give another port, or 0 for any free one"
            ) from err
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._server.server_address[1]}/metrics"

    @property
    def text(self) -> str:
        """What a scrape reads now."""
        state = MetricFamily("crescendo_live_state", "gauge", "1 for what the run is doing.")
        for name in _STATES:
            state.add(float(name == self._state), experiment=self._experiment, state=name)
        found = self._sample
        return exposition([state] if found is None else [state, *live_families(self._experiment, found)])

    def on_statistics(self, state: RunState) -> None:
        now_ns = time.monotonic_ns()
        if now_ns >= self._next_ns:
            self._next_ns = now_ns + _SAMPLE_NS
            found = sample(state, now_ns)
            if state.stage is not Stage.RUNNING and self._sample is not None:
                # Counts go on; rates that were measured stay until the next run has others.
                found = {**self._sample, **{role: {**self._sample[role], **_counted(found[role])} for role in ROLES}}
            self._sample, self._state = found, _STATES[1]

    def on_recorded(self, result: RunResult) -> None:
        self._state = _STATES[2]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, tb: TracebackType | None) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _counted(role: dict[str, Any]) -> dict[str, Any]:
    return {"messages": role["messages"]}


def _handler(metrics: MetricsServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10
        server_version, sys_version = "crescendo", ""

        def do_GET(self) -> None:
            known = self.path.partition("?")[0] == "/metrics"
            body = metrics.text.encode() if known else b"the metrics are at /metrics\n"
            self.send_response(200 if known else 404)
            self.send_header("content-type", MEDIA if known else "text/plain; charset=utf-8")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """A scrape is nothing to print."""

    return Handler
