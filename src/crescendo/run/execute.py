"""How does an experiment become a recording?

Start the control broker, the system and the peers; run the conductor; seal the recording; and leave no process and no
partial recording behind, whatever goes wrong. Does not analyse the recording.
"""

import contextlib
import secrets
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from crescendo.agent.handler_fault import AGENT_TARGET
from crescendo.agent.worker import AGENTS
from crescendo.control.agent_payloads import AGENT
from crescendo.control.bus import parse_control_url
from crescendo.control.conductor.commands import RecordEvent, RunEnding
from crescendo.control.conductor.plan import RunPlan
from crescendo.control.embedded_broker import EmbeddedBroker
from crescendo.control.peer import CONDUCTOR
from crescendo.control.peer_launch import launch_into
from crescendo.control.trust import Lab, NoteScope
from crescendo.lab.link_faults import HOST
from crescendo.model.errors import ConfigError, CrescendoError, LostError
from crescendo.model.experiment import Experiment
from crescendo.model.experiment_file import to_document
from crescendo.model.experiment_inputs import check_inputs, derived_values, input_files, with_inputs_at
from crescendo.model.measurable import check_measurable
from crescendo.model.schedule import offered
from crescendo.model.slices import protocols_by_side
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.record.durable import make_directory
from crescendo.record.inputs import keep_inputs, kept_at, with_derived
from crescendo.record.manifest import MANIFEST, Manifest, write_manifest
from crescendo.record.writer import Recorder
from crescendo.run import host_facts
from crescendo.run.agent_targets import AgentOfRun
from crescendo.run.conductor_loop import ConductorLoop
from crescendo.run.control_access import ControlAccess, control_access, new_run_of
from crescendo.run.experiment_lab import ExperimentLab
from crescendo.run.fault_control import FaultControl
from crescendo.run.file_limits import allow_connections
from crescendo.run.hop_recording import record_hops
from crescendo.run.host_clocks import HostClocks
from crescendo.run.lab_client import LabClient
from crescendo.run.observer import RunObserver
from crescendo.run.peer_process import PeerProcess
from crescendo.run.planning import RunArrangement, files_of_urls, plan_run
from crescendo.run.result import RunResult
from crescendo.run.sealed_manifest import seal_run
from crescendo.run.startable import check_startable
from crescendo.run.system_start import start_system

if TYPE_CHECKING:
    from crescendo.run.recruiting import Recruits

STANDING = ("sender", "receiver")
"""Roles that standing peers always take, as inspectors and agents do where the experiment says so; clients never."""

MAX_INPUT_BYTES = 512 * 1024  # of one file that travels in an assignment
_PEER_EXIT_TIMEOUT_S = 2.0
_ORPHAN_EXIT_TIMEOUT_S = 10.0


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
    control: str | ControlAccess | None = None,
    preparations: Sequence[Preparation] = (),
    durable: bool = True,
) -> RunResult:
    """Run one experiment. Raises if it fails before the barrier, when there is nothing to record yet."""
    check_startable(experiment)
    access = control_access(control)
    if access.url is not None:
        parse_control_url(access.url)
    _check_places(experiment, access)
    check_inputs(experiment, experiment.name)
    check_measurable(experiment, experiment.name)
    run_dir = new_run_dir(out, experiment.name)
    observer.on_started(run_dir)
    try:
        result = _execute(experiment, run_dir, command, observer, access, preparations, durable)
    except BaseException:
        if not (run_dir / MANIFEST).exists():
            # Nothing was measured, so leave nothing that looks like a recording.
            shutil.rmtree(run_dir, ignore_errors=True)
        raise
    return result


def _execute(
    experiment: Experiment,
    run_dir: Path,
    command: Sequence[str],
    observer: RunObserver,
    control: ControlAccess,
    preparations: Sequence[Preparation],
    durable: bool,
) -> RunResult:
    with contextlib.ExitStack() as stack:
        allow_connections(sum(group.senders + group.receivers for group in experiment.workload))
        for preparation in preparations:
            preparation.start()  # while the system starts, too
        lab = control.lab
        scope = new_run_of(lab)
        control_url = control.url
        if control_url is None:
            observer.progress("starting the control broker")
            control_url = stack.enter_context(EmbeddedBroker(on_fork=die_with_parent())).url
        tag = secrets.randbits(32)
        carried_out = experiment.for_run(f"{tag:08x}")
        faults = FaultControl(experiment, stack)
        hosts = None
        if carried_out.lab is not None:
            hosts = ExperimentLab(carried_out, control_url, stack, observer.progress)
        surroundings = faults.surroundings(experiment, run_dir)
        system, system_facts = start_system(carried_out, run_dir, stack, observer, hosts, surroundings)
        agents = {agent.name: AgentOfRun(control_url, lab, scope, agent.peer_id) for agent in experiment.agents}
        stations = {} if hosts is None else hosts.stations
        system = faults.aim(system, stack, {HOST: stations, AGENT_TARGET: agents})
        inputs = keep_inputs(run_dir, input_files(experiment), durable=durable)
        # Peers read the copies, so that the recording holds what was sent even if somebody edits the files meanwhile.
        self_contained = with_inputs_at(carried_out, kept_at(run_dir, inputs))
        names = {file: f"input-{number}" for number, file in enumerate(input_files(self_contained))}
        tls_names = {file: f"tls-{number}" for number, file in enumerate(files_of_urls(self_contained, system))}
        arrangement = plan_run(
            self_contained,
            tag=tag,
            system=system,
            durable=durable,
            input_names=names | tls_names,
            look_at=experiment.foreign_groups,
        )
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
            offered_per_s=offered(self_contained),
            inputs=with_derived(inputs, derived_values(self_contained), kept_at(run_dir, inputs)),
            lab={} if hosts is None else hosts.facts(),
        )
        recruits = _recruits(control, lab, scope, stack, durable)
        plan = arrangement.plan if recruits is None else with_contents(arrangement.plan, names, tls_names)
        loop = ConductorLoop(control_url, scope, plan, system.exit)
        loop.connect()
        stack.callback(loop.close)
        roles = arrangement.roles
        if recruits is not None:
            roles = _recruit(recruits, arrangement, experiment, observer)
            loop.clocks = _compared_clocks(recruits, lab, experiment, observer)
            stack.callback(loop.clocks.close)
        if roles:
            observer.progress("starting " + ", ".join(sorted({f"{role}s" for role in roles.values()})))
        given_files = {name: file for file, name in (names | tls_names).items()}
        configurations = {agent.peer_id: _absolute(agent.config) for agent in experiment.agents if agent.config}
        launch = launch_into(scope, control_url, given_files | configurations)
        data = run_dir.resolve()
        stack.callback(shutil.rmtree, run_dir / AGENTS, ignore_errors=True)  # of an agent that was killed
        wraps = {peer: list if hosts is None else hosts.command_of(peer, role) for peer, role in roles.items()}
        peers = [PeerProcess(peer, role, launch, data, run_dir / "logs", wraps[peer]) for peer, role in roles.items()]
        for peer in peers:
            stack.callback(peer.stop)
        for preparation in preparations:
            preparation.wait(observer.interrupted)
        extras = (system.hop_files, faults, hosts)
        return _conduct(run_dir, manifest, loop, peers, observer, durable, self_contained, recruits, *extras)


def _recruit(
    recruits: "Recruits", arrangement: RunArrangement, experiment: Experiment, observer: RunObserver
) -> dict[str, str]:
    """Recruit standing peers; the roles of the peers that are left for us to start."""
    from crescendo.run.recruiting import WantedPeer

    roles, placed = arrangement.roles, arrangement.inspectors_on
    standing = {peer: role for peer, role in roles.items() if peer in placed or _is_standing(experiment, peer, role)}
    by_side = protocols_by_side(experiment.workload, experiment.clients)
    protocols: dict[str, set[str]] = {peer: set() for peer in roles}
    for connection in arrangement.connections:
        protocols[connection.peer].add(by_side[connection.group, connection.role])
    wanted = {
        peer: WantedPeer(role, placed.get(peer) or _place(experiment, peer, role), tuple(sorted(protocols[peer])))
        for peer, role in standing.items()
    }
    recruits.recruit(wanted, observer.progress, observer.interrupted)
    return {peer: role for peer, role in roles.items() if peer not in standing}


def _conduct(
    run_dir: Path,
    manifest: Manifest,
    loop: ConductorLoop,
    peers: list[PeerProcess],
    observer: RunObserver,
    durable: bool,
    experiment: Experiment,
    recruits: "Recruits | None",
    hop_files: Mapping[str, Path],
    faults: FaultControl,
    hosts: ExperimentLab | None,
) -> RunResult:
    def on_event(event: RecordEvent) -> None:
        if event.kind == "start":
            faults.arm(event.detail["t0_ns"])
            write_manifest(run_dir, manifest, durable=durable)  # from here on there is something worth keeping
        if event.kind == "draining" and recruits is not None:
            recruits.collect_sealed(run_dir)
        observer.on_event(event)

    loop.occurred = faults.take_events
    loop.is_broken = lambda: faults.is_passing
    ending = loop.run(peers, interrupted=observer.interrupted, watch=observer.on_statistics, on_event=on_event)
    faults.close()
    loop.record(faults.take_events(), on_event)
    failure = faults.failure or ("" if hosts is None else hosts.failure)
    if failure and ending.state == "sealed":
        ending = replace(ending, state="incomplete", reason=failure)
    # Without a control broker they notice by themselves that the run is over; their parts are not closed before.
    exit_by_s = time.monotonic() + (_PEER_EXIT_TIMEOUT_S if loop.connected else _ORPHAN_EXIT_TIMEOUT_S)
    for peer in peers:
        peer.wait(max(exit_by_s - time.monotonic(), 0.1))
    if ending.t0_ns is None:
        raise _refusal(ending)
    manifest = msgspec.structs.replace(manifest, clocks=[*manifest.clocks, *loop.clocks.finish()])
    if hosts is not None:
        manifest = msgspec.structs.replace(manifest, lab=hosts.facts())
    recorder = Recorder(run_dir, CONDUCTOR, durable=durable)
    loop.record_events(recorder)
    record_hops(recorder, hop_files, manifest.tag)
    recorder.close()
    if recruits is not None:
        ending = _collected(ending, recruits, run_dir, observer)
    if ending.rate_changes:
        changes = tuple((change.offset_ns, change.rate) for change in ending.rate_changes)
        manifest = msgspec.structs.replace(manifest, offered_per_s=offered(experiment, changes))
    return seal_run(run_dir, manifest, ending, durable)


def _recruits(
    control: ControlAccess, lab: Lab, scope: NoteScope, stack: contextlib.ExitStack, durable: bool
) -> "Recruits | None":
    if not control.standing or control.url is None:
        return None
    from crescendo.run.recruiting import Recruits  # and the HTTP client with it, which no other run needs

    client = LabClient(control.url, lab, f"run-{scope.name}")
    client.connect()
    stack.callback(client.close)
    recruits = Recruits(client, scope, durable=durable)
    stack.callback(recruits.release)
    return recruits


def _check_places(experiment: Experiment, control: ControlAccess) -> None:
    if experiment.lab is not None and control.standing:
        raise ConfigError("lab: its peers are started by the run, on hosts of the lab; run without --standing")
    placed = [f"inspect: on: {inspect.on}" for inspect in experiment.inspect if inspect.on is not None]
    placed += [f"agents.{agent.name}.on" for agent in experiment.agents if agent.on]
    if experiment.lab is None:
        placed += [f"peers.{role}s" for role in STANDING if any(experiment.peers.places(role))]
    if placed and not control.standing:
        raise ConfigError(f"{placed[0]}: only standing peers are on other hosts; run with --standing, or leave it out")


def _place(experiment: Experiment, peer: str, role: str) -> str:
    """Where this peer shall run: ids of senders and receivers end with their number."""
    for agent in experiment.agents:
        if role == AGENT and agent.peer_id == peer:
            return agent.on or ""
    return experiment.peers.places(role)[int(peer.rpartition("-")[2])]


def _is_standing(experiment: Experiment, peer: str, role: str) -> bool:
    return role in STANDING or (role == AGENT and _place(experiment, peer, role) != "")


def _absolute(file: str) -> str:
    return str(Path(file).resolve())


def _compared_clocks(recruits: "Recruits", lab: Lab, experiment: Experiment, observer: RunObserver) -> HostClocks:
    hosts = recruits.clocks()
    observer.progress("comparing clocks")
    clocks = HostClocks(hosts, lab.scope)
    if clocks.differ and experiment.stop_when:
        clocks.close()
        raise ConfigError("stop_when: hosts with different clocks take part, so responses are known after the run only")
    return clocks


def _collected(ending: RunEnding, recruits: "Recruits", run_dir: Path, observer: RunObserver) -> RunEnding:
    """Fetch what standing peers recorded. What is missing makes the run incomplete."""
    from crescendo.run.recording_fetch import compress_logs

    observer.progress("fetching the recording from the standing peers")
    try:
        recruits.collect(run_dir)
        compress_logs(run_dir)
    except (CrescendoError, OSError) as err:
        observer.on_warning(f"the recording is not complete: {err}")
        if ending.state == "sealed":
            return replace(ending, state="incomplete", reason=f"a part of the recording is missing: {err}")
    return ending


def with_contents(plan: RunPlan, names: Mapping[str, str], tls_names: Mapping[str, str]) -> RunPlan:
    """The plan for peers that cannot read our files: they are given what is in them, payloads only to senders."""
    of_tls = {name: _content(file) for file, name in tls_names.items()}
    of_sender = of_tls | {name: _content(file) for file, name in names.items()}
    given = {"sender": of_sender, "receiver": of_tls, "inspector": of_tls}
    peers = tuple(
        replace(peer, assignment=peer.assignment | {"inputs": given[peer.role]}) if peer.role in given else peer
        for peer in plan.peers
    )
    return replace(plan, peers=peers)


def _content(file: str) -> bytes:
    try:
        content = Path(file).read_bytes()
    except OSError as err:
        raise ConfigError(f"{file}: cannot be read: {err.strerror}") from err
    if len(content) > MAX_INPUT_BYTES:
        raise ConfigError(
            f"{file}: standing peers are given at most {MAX_INPUT_BYTES // 1024} KiB of a file, and this one has "
            f"{len(content) // 1024} KiB; run without --standing, or shorten it"
        )
    return content


def _refusal(ending: RunEnding) -> Exception:
    if ending.state == "interrupted":
        return KeyboardInterrupt()  # type: ignore[return-value]
    if ending.fault == "lost":
        return LostError(f"the run could not start: {ending.reason}")
    return ConfigError(f"the run could not start: {ending.reason}")


def new_run_dir(out: Path, name: str) -> Path:
    stamp = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
    try:
        make_directory(out)
    except FileExistsError:
        raise ConfigError(f"--out {out}: this is not a directory; name another place") from None
    except OSError as err:
        raise ConfigError(f"--out {out}: cannot create it: {err.strerror}") from err
    for attempt in range(100):
        run_dir = out / (f"{name}-{stamp}" if attempt == 0 else f"{name}-{stamp}-{attempt}")
        try:
            run_dir.mkdir()
        except FileExistsError:
            continue
        except OSError as err:
            raise ConfigError(f"--out {out}: cannot create {run_dir}: {err.strerror}") from err
        return run_dir
    raise ConfigError(f"--out {out}: too many runs called {name}-{stamp}")
