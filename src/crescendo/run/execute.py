"""How does an experiment become a recording?

Start the control broker, the system and the peers; run the conductor; seal the recording; and leave no process and no
partial recording behind, whatever goes wrong. Does not analyse the recording.
"""

import contextlib
import secrets
import shutil
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import msgspec

from crescendo.control import topics
from crescendo.control.bus import Bus
from crescendo.control.conductor.commands import RecordEvent, RunEnding
from crescendo.control.embedded_broker import EmbeddedBroker
from crescendo.control.notes import Statistics
from crescendo.model.errors import ConfigError, LostError, PeerError
from crescendo.model.experiment import Experiment
from crescendo.model.experiment_file import to_document
from crescendo.model.peer_statistics import PeerStatistics
from crescendo.model.protocols import default_port, protocol_of_scheme
from crescendo.model.urls import parse_url
from crescendo.net.sockets import connect
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.record.manifest import Clock, ExceededLimit, Manifest, PeerRecord, Phase, State, write_manifest
from crescendo.record.reader import journalled_parts
from crescendo.record.writer import Recorder
from crescendo.run import host_facts
from crescendo.run.conductor_loop import CONDUCTOR, ConductorLoop
from crescendo.run.file_limits import allow_connections
from crescendo.run.observer import RunObserver
from crescendo.run.peer_process import PeerProcess
from crescendo.run.planning import RunArrangement, SystemUnderTest, answered_senders, plan_run
from crescendo.run.result import RunResult
from crescendo.systems.base import SystemKind
from crescendo.systems.instance import start
from crescendo.systems.registry import system_of

_PEER_EXIT_TIMEOUT_S = 2.0
_SYSTEM_STOP_GRACE_S = 1.5  # its data is deleted anyway, and after Ctrl-C everything must end within five seconds


class Preparation(Protocol):
    """Work in the background that must be done before the first message is due."""

    def start(self) -> None: ...

    def wait(self, interrupted: Callable[[], bool]) -> None: ...


def execute(
    experiment: Experiment,
    *,
    out: Path,
    command: Sequence[str],
    observer: RunObserver,
    control_url: str | None = None,
    preparations: Sequence[Preparation] = (),
) -> RunResult:
    """Run one experiment. Raises if it fails before the barrier, when there is nothing to record yet."""
    run_dir = new_run_dir(out, experiment.name)
    try:
        result = _execute(experiment, run_dir, command, observer, control_url, preparations)
    except BaseException:
        if not (run_dir / "manifest.json").exists():
            # Nothing was measured, so leave nothing that looks like a recording.
            shutil.rmtree(run_dir, ignore_errors=True)
        raise
    return result


def _execute(
    experiment: Experiment,
    run_dir: Path,
    command: Sequence[str],
    observer: RunObserver,
    control_url: str | None,
    preparations: Sequence[Preparation],
) -> RunResult:
    with contextlib.ExitStack() as stack:
        allow_connections(sum(group.senders + group.receivers for group in experiment.workload))
        observer.progress("starting the control broker")
        if control_url is None:
            control_url = stack.enter_context(EmbeddedBroker(preexec_fn=die_with_parent())).url
        system, system_facts = _start_system(experiment, run_dir, stack, observer)
        for preparation in preparations:
            preparation.start()
        tag = secrets.randbits(32)
        arrangement = plan_run(experiment, run_dir=str(run_dir.resolve()), tag=tag, system=system)
        manifest = Manifest(
            run=run_dir.name,
            tag=tag,
            experiment=to_document(experiment.redacted()),
            command=list(command),
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
        observer.progress("starting " + ", ".join(sorted({f"{role}s" for role in roles.values()})))
        peers = [PeerProcess(peer, role, control_url, run_dir / "logs") for peer, role in roles.items()]
        for peer in peers:
            stack.callback(peer.stop)
        for preparation in preparations:
            preparation.wait(observer.interrupted)
        return _conduct(run_dir, manifest, arrangement, bus, peers, observer)


def _conduct(
    run_dir: Path,
    manifest: Manifest,
    arrangement: RunArrangement,
    bus: Bus,
    peers: list[PeerProcess],
    observer: RunObserver,
) -> RunResult:
    def on_event(event: RecordEvent) -> None:
        if event.kind == "start":
            write_manifest(run_dir, manifest)  # from here on there is something worth keeping
        observer.on_event(event)

    loop = ConductorLoop(bus, arrangement.plan, peers)
    ending = loop.run(interrupted=observer.interrupted, watch=observer.on_statistics, on_event=on_event)
    for peer in peers:
        peer.wait(_PEER_EXIT_TIMEOUT_S)
    if ending.t0_ns is None:
        raise _refusal(ending)
    recorder = Recorder(run_dir, CONDUCTOR)
    loop.record_events(recorder)
    recorder.close()
    return _seal(run_dir, manifest, ending)


def _start_system(
    experiment: Experiment, run_dir: Path, stack: contextlib.ExitStack, observer: RunObserver
) -> tuple[SystemUnderTest, dict[str, Any]]:
    system = experiment.system
    if system.url is not None:
        _check_reachable(system.url)
        protocol = protocol_of_scheme(parse_url(system.url).scheme)
        endpoints = {} if protocol is None else {protocol.endpoint: system.url}
        return SystemUnderTest(endpoints), {"url": experiment.redacted().system.url}
    kind = system_of(system.kind or "")
    observer.progress(f"starting {system.kind}")
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
    """The settings of the file, plus the queues and topics of the load where the system must declare them at start."""
    names = {
        "queues": sorted(
            address.removeprefix("queue://")
            for address in _shared_addresses(experiment)
            if address.startswith("queue:")
        ),
        "topics": sorted(
            address.removeprefix("topic://")
            for address in _shared_addresses(experiment)
            if address.startswith("topic:")
        ),
    }
    return {**{key: names[key] for key in kind.declares}, **experiment.system.settings}


def _shared_addresses(experiment: Experiment) -> set[str]:
    addresses = {
        address
        for group in experiment.workload
        for role in ("sender", "receiver")
        for address in group.shared_addresses(role)
    }
    answered = answered_senders(experiment)
    return addresses | {
        group.reply_group(sender).shared_address
        for group in experiment.workload
        for sender in answered.get(group.name, ())
    }


def _check_reachable(url: str) -> None:
    """Fail early, before anything else is started, if the system is not reachable."""
    parts = parse_url(url)
    try:
        connect(parts.host or "", parts.port or default_port(parts.scheme)).close()
    except PeerError as err:
        raise ConfigError(f"the run could not start: {err}") from err


def _refusal(ending: RunEnding) -> Exception:
    if ending.state == "interrupted":
        return KeyboardInterrupt()  # type: ignore[return-value]
    if ending.fault == "lost":
        return LostError(f"the run could not start: {ending.reason}")
    return ConfigError(f"the run could not start: {ending.reason}")


def _seal(run_dir: Path, manifest: Manifest, ending: RunEnding) -> RunResult:
    state = State(ending.state)
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
        for peer in ending.peers
    ]
    sealed = msgspec.structs.replace(
        manifest,
        state=state,
        reason=ending.reason,
        exceeded=None
        if (end := ending.exceeded) is None
        else ExceededLimit(end.metric, end.value_ns, end.limit_ns, end.peer),
        peers=peers,
        clocks=_clocks(manifest, ending),
        phases=[Phase(name, start_ns, end_ns) for name, start_ns, end_ns in ending.phases],
        files=sorted(journalled_parts(run_dir), key=lambda part: part.path),
    )
    write_manifest(run_dir, sealed)
    return RunResult(run_dir, state, ending.reason)


def _statistics(reported: Statistics | None) -> PeerStatistics:
    if reported is None:
        return PeerStatistics()
    return msgspec.structs.replace(reported.values, messages=float(reported.messages))


def _clocks(manifest: Manifest, ending: RunEnding) -> list[Clock]:
    """Peers on this host share its clock; no other host may take part."""
    hosts = {peer.identity.host for peer in ending.peers if peer.identity}
    unknown = hosts - {clock.host for clock in manifest.clocks}
    if unknown:
        raise LostError(f"the clock of {', '.join(sorted(unknown))} has not been compared with the conductor's")
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
