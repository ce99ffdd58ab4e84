"""Does a system lose acknowledged messages when it is broken at random times?

Each round is a run with a durable workload and a timeline of faults that a seed decides. A round that loses what was
acknowledged is shrunk: runs with fewer of its faults, until the shortest timeline that still fails is found and saved
as an experiment file. A run that cannot be judged neither passes nor fails. What was lost is what the ledger of the
run says; a message that the system still holds, or may hold, is not lost.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import yaml

from crescendo.faults.registry import action_of
from crescendo.inspectors.registry import INSPECTORS
from crescendo.load.protocols.mlmq import LEASE_MS
from crescendo.model.errors import ConfigError, LostError
from crescendo.model.experiment import Experiment
from crescendo.model.experiment_file import experiment_from, to_document
from crescendo.model.planned_faults import PlannedFault
from crescendo.model.protocols import AMQP091, MLMQ, known_protocols, protocol_of
from crescendo.model.random_faults import ACTIONS, random_timeline, worst_first
from crescendo.model.shrinking import shrink
from crescendo.model.units import Duration
from crescendo.record.documents import write_atomically
from crescendo.record.manifest import State
from crescendo.run.analysis import Analyst
from crescendo.run.execute import execute, new_run_dir
from crescendo.run.observer import RunObserver
from crescendo.run.result import RunResult
from crescendo.systems.registry import system_of
from crescendo.systems.settings import protocols_of

FAILING = "failing.yml"
"""The file of the shortest timeline that fails."""

DEFAULT_MEASURE = Duration(10 * 10**9)
_DRAIN_S, _DRAIN_LIMIT = 5, "2m"  # after the last message, and while messages still arrive
_TRIES = 2  # a loss may need luck, so fewer faults count as harmless only after as many runs without one
_RATE, _SENDERS, _RECEIVED_SHARE = 200, 2, 0.8

Report = Callable[[str], None]


@dataclass(frozen=True)
class Round:
    """One run: what it lost of what was acknowledged; None if it cannot be judged. Only losses keep a recording."""

    seed: int
    faults: list[PlannedFault]
    lost: int | None
    reason: str = ""
    run_dir: Path | None = None


@dataclass
class TortureResult:
    """All rounds, and the shortest failing timeline if one failed."""

    rounds: list[Round] = field(default_factory=list)
    failing: Round | None = None
    shortest: list[PlannedFault] = field(default_factory=list)
    file: Path | None = None

    @property
    def judged(self) -> int:
        return sum(one.lost is not None for one in self.rounds)


def possible_actions(wanted: Sequence[str] = ()) -> list[str]:
    """What can be done on this machine, of these or of all. ConfigError for what there is not."""
    unknown = [name for name in wanted if name not in ACTIONS]
    if unknown:
        raise ConfigError(f"--do {unknown[0]}: torture does {', '.join(ACTIONS)}")
    able = [
        name for name in wanted or ACTIONS if not (action := action_of(name)).why_not(action.settings_of({}))
    ]  # fmt: skip
    if not able:
        raise ConfigError(f"--do: none of {', '.join(wanted or ACTIONS)} can be done on this machine")
    return able


def durable_experiment(system: str, measure: Duration = DEFAULT_MEASURE, overrides: tuple[str, ...] = ()) -> Experiment:
    """A workload whose messages the system must keep: durable, acknowledged, and with a backlog at all times."""
    protocol = _protocol(system)
    document: dict[str, Any] = {
        "name": f"torture-{system}",
        "system": {"kind": system},
        "workload": {
            "address": ["queue://torture" if protocol == MLMQ.name else "queue://torture?durable=yes"],
            "protocol": protocol,
            "senders": _SENDERS,
            "receivers": 1,
            "rate": _RATE,
            "receive_rate": _RATE * _SENDERS * _RECEIVED_SHARE,
        },
        "phases": {"warmup": "0s", "measure": str(measure), "drain": _drain(protocol), "drain_limit": _DRAIN_LIMIT},
        "checks": {"lost_acknowledged": 0},
        "accept_drift": True,
    }
    if system in INSPECTORS:  # it says what the queue holds in the end
        document["inspect"] = [{"kind": system, "every": "1s"}]
    return experiment_from(document, overrides, source="torture")


def torture(
    experiment: Experiment,
    *,
    seed: int,
    for_ns: int,
    out: Path,
    actions: Sequence[str],
    observer: RunObserver,
    report: Report,
    analyst: Analyst | None = None,
) -> TortureResult:
    """Rounds with the seeds from `seed` on until the time is over or one fails; that one is shrunk."""
    measure_ns = experiment.phases.measure.duration
    if measure_ns is None:
        raise ConfigError("torture: phases.measure must be a duration")
    directory = new_run_dir(out, experiment.name)
    result = TortureResult()
    deadline_s = time.monotonic() + for_ns / 1e9
    number = 0
    try:
        with nullcontext(analyst) if analyst is not None else Analyst() as judge:
            rounds = _Rounds(experiment, directory, observer, judge)
            while not observer.interrupted() and (number == 0 or time.monotonic() < deadline_s):
                one = rounds.carry_out(seed + number, random_timeline(seed + number, actions, measure_ns))
                result.rounds.append(one)
                report(_sentence(one))
                number += 1
                if one.lost:
                    result.failing = one
                    _shrink(rounds, one, report, result)
                    break
    finally:
        if not any(directory.iterdir()):
            directory.rmdir()
    return result


@dataclass(frozen=True)
class _Rounds:
    """Runs of one experiment, with one timeline after the other."""

    experiment: Experiment
    directory: Path
    observer: RunObserver
    analyst: Analyst

    def carry_out(self, seed: int, faults: list[PlannedFault]) -> Round:
        broken = msgspec.structs.replace(self.experiment, seed=seed, faults=faults)
        command = ["crescendo", "torture", self.experiment.system.kind or ""]
        try:
            result = execute(
                broken,
                out=self.directory,
                command=command,
                observer=self.observer,
                preparations=[self.analyst],
                durable=False,
            )
        except LostError as err:
            return Round(seed, faults, None, str(err))
        one = self._judged(seed, faults, result)
        if not one.lost:
            shutil.rmtree(result.run_dir, ignore_errors=True)  # hours of it would fill the disk
        return one

    def _judged(self, seed: int, faults: list[PlannedFault], result: RunResult) -> Round:
        if result.state is not State.SEALED:
            return Round(seed, faults, None, result.reason)
        total = self.analyst.analyze(result.run_dir, self.observer.progress).total
        if total.undelivered and not total.lost_acknowledged:
            return Round(seed, faults, None, f"{total.undelivered:,} messages were not delivered before it ended")
        return Round(seed, faults, total.lost_acknowledged, run_dir=result.run_dir)


def _shrink(rounds: _Rounds, failing: Round, report: Report, result: TortureResult) -> None:
    def fails(faults: list[PlannedFault]) -> bool:
        for _ in range(_TRIES):
            if rounds.observer.interrupted():
                return False
            one = rounds.carry_out(failing.seed, faults)
            report(f"shrinking: {_sentence(one)}")
            if one.lost:
                return True
        return False

    fewest = shrink(worst_first(failing.faults), fails)
    result.shortest = [fault for fault in failing.faults if fault in fewest]
    result.file = _saved(rounds.experiment, failing, result.shortest, rounds.directory)


def _saved(experiment: Experiment, failing: Round, shortest: list[PlannedFault], directory: Path) -> Path:
    document = to_document(msgspec.structs.replace(experiment, seed=failing.seed, faults=shortest).redacted())
    heading = (
        f"# The shortest timeline found that loses acknowledged messages: {len(shortest)} of {len(failing.faults)} "
        f"faults of seed {failing.seed}, which lost {failing.lost}.\n"
    )
    path = directory / FAILING
    write_atomically(path, (heading + yaml.safe_dump(document, sort_keys=False)).encode())
    return path


def _sentence(one: Round) -> str:
    faults = ", ".join(described(fault) for fault in one.faults)
    outcome = "cannot be judged: " + one.reason if one.lost is None else f"lost {one.lost:,} acknowledged messages"
    return f"seed {one.seed}: {faults}: {outcome}"


def described(fault: PlannedFault) -> str:
    lasts = f" for {fault.lasts}" if fault.lasts else ""
    return f"{fault.do}{lasts} at {fault.at.offset}"


def _drain(protocol: str) -> str:
    """Longer than MLMQ keeps what it has given to a receiver that lost its connection."""
    return f"{_DRAIN_S + (LEASE_MS // 1000 if protocol == MLMQ.name else 0)}s"


def _protocol(system: str) -> str:
    """The first protocol of the system whose queues can be durable."""
    endpoints = protocols_of(system_of(system))
    # Over AMQP 0-9-1 where there is a choice: to RabbitMQ 3, AMQP 1.0 declares queues that do not survive a restart.
    for name, protocol in sorted(known_protocols().items(), key=lambda known: known[0] != AMQP091.name):
        if protocol.endpoint in endpoints and _keeps(name):
            return name
    raise ConfigError(f"{system}: it speaks no protocol with durable queues, so it promises nothing that it could lose")


def _keeps(protocol: str) -> bool:
    return protocol == MLMQ.name or "durable" in protocol_of(protocol).address_options
