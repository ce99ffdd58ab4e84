"""How is a ceiling measured?

A null server process and a load generator process run several short trials; the median is the ceiling. One pair at a
time: two would compete for the cores. The counts of both sides must agree.
"""

import contextlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator

import msgspec

from crescendo.calibrate import null_process, trial
from crescendo.calibrate.calibration_file import RECEIVER, ROLES, SENDER, Ceiling
from crescendo.calibrate.engine_trial import TrialResult
from crescendo.calibrate.null_process import TIMEOUT_S, NullServerCounts
from crescendo.calibrate.registry import calibrated_protocols
from crescendo.model.errors import ConfigError, LostError
from crescendo.model.suggestions import listing
from crescendo.model.workload import STAMP_BYTES
from crescendo.processes.child import ChildProcess, OnFork, close_pipes, first_line, launch_child, wait_or_kill

SIZES = (256, 1024, 16 * 1024)
TRIALS = 3
SECONDS = 1.0
MAX_SECONDS = 10.0
"""A null server sends no heartbeats; clients time out after twice this time."""

MAX_SIZE = 60_000
"""Larger messages do not fit into one AMQP 1.0 frame, and their limit is copying bytes, not handling messages."""


def check(protocols: list[str], sizes: list[int], seconds: float) -> None:
    """Reject what cannot be measured."""
    known = calibrated_protocols()
    for protocol in protocols:
        if protocol not in known:
            raise ConfigError(f"no protocol is called {protocol!r}; {listing(protocol, known)}")
    for size in sizes:
        if not STAMP_BYTES <= size <= MAX_SIZE:
            raise ConfigError(f"--size {size}: a size for calibration is {STAMP_BYTES} to {MAX_SIZE:,} bytes")
    if not 0 < seconds <= MAX_SECONDS:
        raise ConfigError(f"--seconds {seconds:g}: a trial takes more than 0 and at most {MAX_SECONDS:g} seconds")


def measure_all(
    protocols: list[str],
    sizes: list[int],
    *,
    seconds: float,
    progress: Callable[[str], None],
    on_fork: OnFork | None,
) -> list[Ceiling]:
    """The ceilings of both roles for every protocol and size."""
    wanted = [(protocol, role, size) for protocol in protocols for size in sizes for role in ROLES]
    ceilings = []
    for number, (protocol, role, size) in enumerate(wanted, 1):
        progress(f"{number} of {len(wanted)}: {protocol} {role}, {size:,} bytes")
        ceilings.append(measure(protocol, role, size, seconds=seconds, trials=TRIALS, on_fork=on_fork))
    return ceilings


def measure(protocol: str, role: str, size: int, *, seconds: float, trials: int, on_fork: OnFork | None) -> Ceiling:
    """The ceiling of one protocol, role and size on this machine, now."""
    results, server_counts = _run_trials(protocol, role, size, seconds, trials, on_fork)
    for result, counts in zip(results, server_counts, strict=True):
        _compare(result, counts, role, size)
    rates = [result.rate for result in results]
    without_stalls = statistics.median(result.rate_without_stalls for result in results)
    return Ceiling(
        protocol, role, size, statistics.median(rates), min(rates), max(rates), len(rates), without_stalls
    )  # fmt: skip


def _run_trials(
    protocol: str, role: str, size: int, seconds: float, trials: int, on_fork: OnFork | None
) -> tuple[list[TrialResult], list[NullServerCounts]]:
    server_role = null_process.SINK if role == SENDER else null_process.SOURCE
    with (
        tempfile.TemporaryDirectory(prefix="crescendo-calibrate-") as directory,  # ours: a trial may be killed
        _process(on_fork, null_process.__name__, protocol, server_role, size, trials) as server,
    ):
        port = first_line(server, TIMEOUT_S)
        if not port:
            raise LostError("a null server did not start; its output is above")
        with _process(on_fork, trial.__name__, protocol, role, port, size, seconds, trials, directory) as engine:
            engine_output, _ = engine.communicate(timeout=trials * (seconds + 2 * TIMEOUT_S))
        if engine.returncode:
            raise LostError(f"the {role} of {protocol} did not finish its trials; its output is above")
        server_output, _ = server.communicate(timeout=TIMEOUT_S)
    results = [msgspec.json.decode(line, type=TrialResult) for line in engine_output.splitlines()]
    server_counts = [msgspec.json.decode(line, type=NullServerCounts) for line in server_output.splitlines()]
    if len(results) != trials or len(server_counts) != trials:
        raise LostError(f"the null server of the {role} of {protocol} did not finish; its output is above")
    return results, server_counts


@contextlib.contextmanager
def _process(on_fork: OnFork | None, module: str, *arguments: object) -> Iterator[ChildProcess]:
    process = launch_child(
        [sys.executable, "-m", module, *map(str, arguments)], on_fork=on_fork, stdout=subprocess.PIPE
    )
    try:
        yield process
    except subprocess.TimeoutExpired:
        raise LostError(f"{module} did not end in time") from None
    finally:
        wait_or_kill(process, 0)
        close_pipes(process)


def _compare(result: TrialResult, counts: NullServerCounts, role: str, size: int) -> None:
    """Raise unless the counts of both sides agree: otherwise the rate means nothing."""
    if not result.messages or not result.seconds:
        raise LostError(f"no message passed between the {role} and its null server")
    if role == SENDER and counts.octets < result.messages * size:
        raise LostError(f"{result.messages:,} messages of {size} bytes were sent, {counts.octets:,} bytes arrived")
    if role == RECEIVER and counts.messages < result.messages:
        raise LostError(f"{result.messages:,} messages were received, {counts.messages:,} were sent")
