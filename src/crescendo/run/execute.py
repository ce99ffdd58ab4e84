"""How does an experiment become a recording?

Start the control broker, the system and the peers; play; seal; and leave no process and no half-made recording
behind, whatever happens on the way. Analysing the recording is somebody else's job.
"""

import contextlib
import secrets
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from crescendo.control import topics
from crescendo.control.bus import Bus
from crescendo.control.conductor.commands import RecordEvent, RunEnding
from crescendo.control.conductor.state import RunState
from crescendo.control.embedded_broker import EmbeddedBroker
from crescendo.model.address import PORTS, SCHEMES
from crescendo.model.errors import ConfigError, LostError, PeerError
from crescendo.model.experiment import Experiment, to_document
from crescendo.model.workload import PROTOCOLS
from crescendo.net.sockets import connect
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.record.manifest import Clock, ExceededLimit, Manifest, PeerRecord, Phase, State, write_manifest
from crescendo.record.reader import journalled_parts
from crescendo.record.writer import Recorder
from crescendo.run import host_facts
from crescendo.run.conductor_loop import CONDUCTOR, ConductorLoop
from crescendo.run.file_limits import allow_connections
from crescendo.run.peer_process import PeerProcess
from crescendo.run.planning import RunArrangement, SystemUnderTest, answered_senders, plan_run
from crescendo.systems.base import SystemKind
from crescendo.systems.instance import start
from crescendo.systems.registry import system_of

_LEAVE_TIMEOUT_S = 2.0
_SYSTEM_STOP_GRACE_S = 1.5  # its data goes with it; who presses Ctrl-C waits for at most five seconds


@dataclass(frozen=True)
class RunObserver:
    """How the caller follows a run, and how it asks to stop."""

    interrupted: Callable[[], bool]
    progress: Callable[[str], None]
    watch: Callable[[RunState], None]
    on_mark: Callable[[RecordEvent], None]
    prepare: Callable[[], None]  # begin, in the background, what must be over before the first message is due
    await_prepared: Callable[[], None]


@dataclass(frozen=True)
class RunResult:
    """A finished run: where its recording is, and how it ended."""

    run_dir: Path
    state: State
    reason: str


def execute(
    experiment: Experiment, *, out: Path, command: list[str], watcher: RunObserver, control_url: str | None = None
) -> RunResult:
    """Run one experiment. Raises before the barrier, when there is nothing to record yet."""
    run_dir = new_run_dir(out, experiment.name)
    try:
        performance = _perform(experiment, run_dir, command, watcher, control_url)
    except BaseException:
        if not (run_dir / "manifest.json").exists():
            shutil.rmtree(run_dir, ignore_errors=True)  # nothing was measured, so nothing may look like a recording
        raise
    return performance


def _perform(
    experiment: Experiment, run_dir: Path, command: list[str], watcher: RunObserver, control_url: str | None
) -> RunResult:
    with contextlib.ExitStack() as stack:
        allow_connections(sum(group.senders + group.receivers for group in experiment.workload))
        watcher.progress("starting the control broker")
        if control_url is None:
            control_url = stack.enter_context(EmbeddedBroker(preexec_fn=die_with_parent())).url
        system, system_facts = _start_system(experiment, run_dir, stack, watcher)
        watcher.prepare()
        tag = secrets.randbits(32)
        arrangement = plan_run(experiment, run_dir=str(run_dir.resolve()), tag=tag, system=system)
        manifest = Manifest(
            run=run_dir.name,
            tag=tag,
            experiment=to_document(experiment.redacted()),
            command=command,
            started_ns=time.time_ns(),
            versions=host_facts.versions(),
            host=host_facts.host(),
            system=system_facts,
            clocks=[host_facts.clock()],
            connections=arrangement.connections,
        )
        bus = Bus(control_url, f"{CONDUCTOR}-{secrets.token_hex(4)}", (topics.REPLIES, topics.NOTIFICATIONS))
        bus.connect()
        stack.callback(bus.close)
        roles = arrangement.roles
        watcher.progress("starting " + ", ".join(sorted({f"{role}s" for role in roles.values()})))
        peers = [PeerProcess(peer, role, control_url, run_dir / "logs") for peer, role in roles.items()]
        for peer in peers:
            stack.callback(peer.stop)
        watcher.await_prepared()
        return _conduct(run_dir, manifest, arrangement, bus, peers, watcher)


def _conduct(
    run_dir: Path,
    manifest: Manifest,
    arrangement: RunArrangement,
    bus: Bus,
    peers: list[PeerProcess],
    watcher: RunObserver,
) -> RunResult:
    def on_mark(mark: RecordEvent) -> None:
        if mark.kind == "start":
            write_manifest(run_dir, manifest)  # from here on there is something worth keeping
        watcher.on_mark(mark)

    player = ConductorLoop(bus, arrangement.plan, peers)
    outcome = player.run(interrupted=watcher.interrupted, watch=watcher.watch, on_mark=on_mark)
    for peer in peers:
        peer.wait(_LEAVE_TIMEOUT_S)
    if outcome.t0_ns is None:
        raise _refusal(outcome)
    recorder = Recorder(run_dir, CONDUCTOR)
    player.record_marks(recorder)
    recorder.close()
    return _seal(run_dir, manifest, outcome)


def _start_system(
    experiment: Experiment, run_dir: Path, stack: contextlib.ExitStack, watcher: RunObserver
) -> tuple[SystemUnderTest, dict[str, Any]]:
    system = experiment.system
    if system.url is not None:
        _check_reachable(system.url)
        url = system.url
        return SystemUnderTest({PROTOCOLS[SCHEMES[urlsplit(url).scheme]]: url}), {
            "url": experiment.redacted().system.url
        }
    kind = system_of(system.kind or "")
    watcher.progress(f"starting {system.kind}")
    instance = start(
        kind,
        _settings(kind, experiment),
        directory=run_dir.resolve() / "system",
        home=Path(system.home) if system.home else None,
        version=system.version,
        on_fork=die_with_parent(),
        keep_logs=run_dir / "logs",
        stop_grace_s=_SYSTEM_STOP_GRACE_S,
    )
    stack.callback(instance.stop)
    return SystemUnderTest(instance.endpoints, instance.pid), instance.facts


def _settings(kind: SystemKind, experiment: Experiment) -> dict[str, Any]:
    """Those of the file, and the names that the load needs where they must be there from the start."""
    names = {
        "queues": sorted(place.removeprefix("queue://") for place in _places(experiment) if place.startswith("queue:")),
        "topics": sorted(place.removeprefix("topic://") for place in _places(experiment) if place.startswith("topic:")),
    }
    return {**{key: names[key] for key in kind.declares}, **experiment.system.settings}


def _places(experiment: Experiment) -> set[str]:
    places = {place for group in experiment.workload for role in ("sender", "receiver") for place in group.places(role)}
    answered = answered_senders(experiment)
    return places | {
        group.answers_to(sender).meeting for group in experiment.workload for sender in answered.get(group.name, ())
    }


def _check_reachable(url: str) -> None:
    """Learn at once, and not after everything else has started, that nobody is there."""
    parts = urlsplit(url)
    try:
        connect(parts.hostname or "", parts.port or PORTS[parts.scheme]).close()
    except PeerError as err:
        raise ConfigError(f"the run could not start: {err}") from err


def _refusal(outcome: RunEnding) -> Exception:
    if outcome.state == "interrupted":
        return KeyboardInterrupt()  # type: ignore[return-value]
    if outcome.fault == "lost":
        return LostError(f"the run could not start: {outcome.reason}")
    return ConfigError(f"the run could not start: {outcome.reason}")


def _seal(run_dir: Path, manifest: Manifest, outcome: RunEnding) -> RunResult:
    state = State(outcome.state)
    peers = [
        PeerRecord(
            id=peer.id,
            role=peer.identity.role if peer.identity else peer.role,
            host=peer.identity.host if peer.identity else "",
            pid=peer.identity.pid if peer.identity else 0,
            ended=peer.ended,
            reason=peer.reason,
            statistics=_statistics(peer.statistics),
        )
        for peer in outcome.peers
    ]
    sealed = msgspec.structs.replace(
        manifest,
        state=state,
        reason=outcome.reason,
        exceeded=None
        if (end := outcome.exceeded) is None
        else ExceededLimit(end.metric, end.value_ns, end.limit_ns, end.peer),
        peers=peers,
        clocks=_clocks(manifest, outcome),
        phases=[Phase(name, start_ns, end_ns) for name, start_ns, end_ns in outcome.phases],
        files=sorted(journalled_parts(run_dir), key=lambda part: part.path),
    )
    write_manifest(run_dir, sealed)
    return RunResult(run_dir, state, outcome.reason)


def _statistics(statistics: Any) -> dict[str, float]:
    if statistics is None:
        return {}
    return {"messages": float(statistics.messages), **statistics.values}


def _clocks(manifest: Manifest, outcome: RunEnding) -> list[Clock]:
    """Peers on this host share its clock."""
    hosts = {peer.identity.host for peer in outcome.peers if peer.identity}
    unknown = hosts - {clock.host for clock in manifest.clocks}
    if unknown:
        raise LostError(f"the clock of {', '.join(sorted(unknown))} has not been compared with ours")
    return manifest.clocks


def new_run_dir(out: Path, name: str) -> Path:
    stamp = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
    for attempt in range(100):
        run_dir = out / (f"{name}-{stamp}" if attempt == 0 else f"{name}-{stamp}-{attempt}")
        try:
            run_dir.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as err:
            raise ConfigError(f"--out {out}: cannot create {run_dir}: {err.strerror}") from err
        return run_dir
    raise ConfigError(f"--out {out}: too many runs called {name}-{stamp}")
