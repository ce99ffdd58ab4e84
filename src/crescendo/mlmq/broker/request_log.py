"""What does a broker record about each request and each statement?

Counters always, and lines of the performance log when there is one: how long a request took to arrive, to be processed,
to be answered and in total, and how long each statement took. A refusal is never logged as Ok.
"""

from collections.abc import Sequence
from pathlib import Path

from crescendo.mlmq import performance_log as perf_log
from crescendo.mlmq.broker import legacy_log_names
from crescendo.mlmq.broker.call import Call
from crescendo.mlmq.broker.openmetrics import Metrics
from crescendo.mlmq.broker.settings import BrokerSettings
from crescendo.wire.mlmq.operations import Answer, Messages, Refused


class RequestLog:
    """All counters and log lines go through here."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self._log: perf_log.PerformanceLog | None = None
        self._context = "C[0]"

    def open_log(self, settings: BrokerSettings, port: int) -> None:
        """One file per broker, named for its port."""
        if settings.performance_log:
            description = (
                f"BrokerConfiguration Scenario[CrescendoBroker] Port[{port}] "
                f"WorkerThreadCount[{settings.workers}] DbConnectionPoolSize[{settings.connections}]"
            )
            path = Path(settings.performance_log) / f"broker_{port}.log"
            self._log = perf_log.PerformanceLog(path, description, settings.performance_unit)

    def close_log(self) -> str | None:
        """Why the log ended early, if it did."""
        if self._log is None:
            return None
        self._log.close()
        return self._log.failure

    def clients(self, count: int) -> None:
        """How many are connected: the context of every line of the original log."""
        self._context = f"C[{count}]"

    def served(self, call: Call, answer: Answer) -> None:
        """A request whose answer the socket has taken."""
        metrics = self.metrics
        kind = type(call.request).__name__ if call.request is not None else "unreadable"
        metrics.requests[kind, outcome_of(answer)] += 1
        tiers = metrics.tier_ns
        tiers["receive"] += call.receive_ns
        tiers["queue"] += call.queue_ns
        tiers["pool"] += call.pool_ns
        tiers["database"] += call.database_ns
        tiers["wait"] += call.wait_ns
        tiers["send"] += call.send_ns
        if self._log is not None:
            self._log_request(self._log, call, answer)

    def statement(self, kinds: Sequence[type], duration_ns: int, ended_ns: int, ok: bool) -> None:
        """A statement that served requests of these kinds, grouped by kind."""
        metrics = self.metrics
        served = kinds[:1] if kinds[0] is kinds[-1] else (kinds[0], kinds[-1])
        name = "+".join(kind.__name__ for kind in served)
        metrics.statements[name] += 1
        metrics.database_ns[name] += duration_ns
        metrics.database_failures += not ok
        if self._log is not None:
            names = "+".join(legacy_log_names.STATEMENTS[kind] for kind in served)
            action = f"{perf_log.BROKER_DATABASE}#{names}#{'Ok' if ok else 'Error'}#{len(kinds)}"
            self._log.log(action, duration_ns, ended_ns, self._context)

    def _log_request(self, log: perf_log.PerformanceLog, call: Call, answer: Answer) -> None:
        ended_ns, context = call.mark_ns, self._context
        request = legacy_log_names.REQUESTS[type(call.request)] if call.request is not None else "UnknownRequest"
        log.log(perf_log.BROKER_RECEIVE, call.receive_ns, ended_ns - call.total_ns + call.receive_ns, context)
        answered_ns = ended_ns - call.send_ns
        for action, duration_ns, at_ns in (
            (perf_log.BROKER_QUEUE, call.queue_ns, answered_ns),
            (perf_log.BROKER_POOL, call.pool_ns, answered_ns),
            (perf_log.BROKER_WAIT, call.wait_ns, answered_ns),
            # A request occupies a worker while it waits for a connection and while the database works.
            (
                f"{perf_log.BROKER_PROCESS}#{request}:{legacy_log_names.ANSWERS[type(answer)]}",
                call.pool_ns + call.database_ns,
                answered_ns,
            ),
            (perf_log.BROKER_SEND, call.send_ns, ended_ns),
            (perf_log.BROKER_TOTAL, call.total_ns, ended_ns),
        ):
            log.log(action, duration_ns, at_ns, context)


def outcome_of(answer: Answer) -> str:
    """ok, empty, or the reason of the refusal."""
    if isinstance(answer, Refused):
        return answer.reason.name.lower()
    return "empty" if isinstance(answer, Messages) and not answer.messages else "ok"
