"""How does a peer wait for runs?

It joins the scope of its lab and answers. When it is assigned a role in a run, it starts a peer process for that run,
which gets the key of the run over a pipe and writes to a directory of its own under DATA; until that process has ended
it takes no other. If the conductor is lost it ends that process, unless that has ended by itself. What a run left is
handed out in pieces to the lab that started it, and deleted when the lab releases it. A test by hand needs no run: SET
describes it, START and STOP begin and end a process that nobody conducts. Accepts nothing that does not carry the lab's
authentication code.
"""

import os
import shutil
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from crescendo import __version__
from crescendo.control.agent_payloads import AGENT
from crescendo.control.clock_exchange import ClockResponder, clock_id
from crescendo.control.notes import Command, Failure, Identity, Note, NotePayload, Statistics
from crescendo.control.peer import Peer, identity_of_this_process
from crescendo.control.peer_launch import UnconductedTest, launch_into
from crescendo.control.peer_loop import failure_of
from crescendo.control.request_payloads import (
    BUSY,
    FREE,
    About,
    FilePiece,
    FileRequest,
    PeerOffer,
    RoleAssignment,
    SetOptions,
    SetRequest,
    StartByHand,
    options_from,
)
from crescendo.control.topics import Topics
from crescendo.control.trust import Lab, NoteScope
from crescendo.model.errors import ConfigError, CrescendoError, LostError, PeerError
from crescendo.model.protocols import default_port, known_protocols
from crescendo.model.url_files import check_given, files_of_url
from crescendo.model.urls import parse_url, redact_url_text
from crescendo.record.inputs import INPUTS
from crescendo.run.by_hand import check_options, connection_rate, merged, start_and_stop, unconducted_test
from crescendo.run.lab_client import LabClient
from crescendo.run.peer_process import PeerProcess
from crescendo.run.recording_server import RecordingServer

PIECE_BYTES = 512 * 1024
_LISTEN_S = 0.2
_RECONNECT_S = 2.0
_TELL_S = 10.0  # for the process of a test by hand to join, and to carry out a request
_PING_S = 0.3
_ORPHAN_S = 10.0  # for the process of a run to end by itself when its conductor is lost


class StandingPeer:
    """One process that waits for runs of its lab."""

    def __init__(
        self,
        control_url: str,
        lab: Lab,
        role: str,
        peer_id: str,
        data: Path,
        *,
        listen: str | None = None,
        labels: Sequence[str] = (),
        files: Mapping[str, str] | None = None,
    ) -> None:
        """It answers on `listen`, by default the address from which it reaches the control broker.

        Its processes may read `files`, by name.
        """
        self._own_files = dict(files or {})
        self._url, self._lab, self._role, self._id = control_url, lab, role, peer_id
        self._data = data
        self._process: PeerProcess | None = None
        self._by_hand = False  # whether that process belongs to a test by hand
        self._run = ""
        self._assigned_by = 0  # the session of the process that recruited it
        self._ends_s: float | None = None  # when the process of a lost run is ended
        self._options = SetOptions()
        self._files: dict[str, bytes] = {}
        try:
            data.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as err:
            raise ConfigError(f"--data {data}: cannot create it: {err.strerror}") from err
        address = listen or local_address_towards(control_url)
        try:
            self._clock = ClockResponder(address, lab.scope)
            self._recordings = RecordingServer(address, data, lab)
        except OSError as err:
            raise ConfigError(f"--listen {address}: nothing can listen there: {err.strerror}") from err
        self._offer = PeerOffer(
            version=__version__,
            clock=clock_id(),
            realtime_offset_ns=time.time_ns() - time.monotonic_ns(),
            address=address,
            clock_port=self._clock.port,
            files_port=self._recordings.port,
            authority=self._recordings.authority,
            cores=os.cpu_count() or 1,
            labels=list(labels),
            protocols=list(known_protocols()),
        )

    def run(self) -> None:
        """Wait for runs until halted. A lost control broker is dialled again; one that was never there is an error."""
        peer = self._join()
        try:
            while self._serve(peer):
                peer.close()
                peer = self._rejoin()
        finally:
            self._end_process()
            peer.close()
            self._clock.close()
            self._recordings.close()

    @property
    def _start_command(self) -> Command:
        return start_and_stop(self._role)[0]

    @property
    def _stop_command(self) -> Command:
        return start_and_stop(self._role)[1]

    def _join(self) -> Peer:
        peer = Peer(self._url, self._lab.scope, identity_of_this_process(self._id, self._role))
        peer.state = BUSY if self._process else FREE
        peer.offer = self._offer
        peer.join()
        return peer

    def _rejoin(self) -> Peer:
        while True:
            time.sleep(_RECONNECT_S)
            try:
                return self._join()
            except (ConfigError, PeerError):
                continue

    def _serve(self, peer: Peer) -> bool:
        """Serve until halted (False) or until the connection is lost (True)."""
        while not peer.orphaned:
            request = peer.next_request(_LISTEN_S)
            if self._process is not None and (ended := self._process.exit_reason) is not None:
                peer.log(f"run {self._run}: {ended}")
                self._end_process()
            self._end_orphan(peer)
            if request is not None:
                if request.command is Command.HALT:
                    peer.accept(request)
                    return False
                try:
                    self._carry_out(peer, request)
                except CrescendoError as err:
                    peer.refuse(request, failure_of(err))
                except OSError as err:
                    peer.refuse(request, Failure(f"its directory: {err.strerror}", "lost"))
            peer.state, peer.run = (BUSY, self._run) if self._process else (FREE, "")
        return True

    def _carry_out(self, peer: Peer, request: Note) -> None:
        match request.command:
            case Command.ROLE_ASSIGN:
                self._assign(RoleAssignment.from_payload(request.payload), request.sender)
                peer.log(f"assigned to run {self._run}")
                peer.accept(request)
            case Command.ROLE_UNASSIGN:
                self._unassign(RoleAssignment.from_payload(request.payload).run)
                peer.accept(request)
            case Command.GET:
                self._hand_out(peer, request)
            case Command.FLUSH:
                peer.accept(request)  # it records nothing itself
            case Command.SET:
                self._set(peer, SetRequest.from_payload(request.payload))
                peer.accept(request)
            case command if command is self._start_command:
                self._start(StartByHand.from_payload(request.payload))
                peer.log(f"began test {self._run}")
                peer.accept(request)
            case command if command is self._stop_command:
                statistics = Statistics.from_payload(self._tell(command))
                self._end_process()
                peer.accept(request, statistics)
            case Command.DRAIN:
                self._tell(Command.DRAIN)
                peer.accept(request)
            case Command.AGENT_SOURCE | Command.USER_COMMAND_1 if self._role == AGENT:
                where = f"{self._run}/{self._process.peer}" if self._process else "START_AGENT begins one"
                raise ConfigError(f"{request.command.name} is for its process in a run or test: {where}")
            case command:
                raise ConfigError(f"{command.name} means nothing to a standing {self._role}")

    def _set(self, peer: Peer, given: SetRequest) -> None:
        """Keep options for the next test by hand; a running one changes its rate."""
        if given.assignment is not None:
            raise ConfigError("an assignment is for a peer of a run; a standing peer needs a role in one (ROLE_ASSIGN)")
        changed = options_from(given.options)
        check_options(self._role, changed)
        options = merged(self._options, changed)
        named = files_of_url(options.broker or "") + files_of_url(options.management_interface or "")
        files = {name: content for name, content in (self._files | given.files).items() if name in named}
        check_given(named, files)
        rate = connection_rate(changed, options)
        if self._by_hand and self._process is not None and rate is not None:
            self._tell(Command.SET, SetRequest(options={"rate": rate}))
        self._options, self._files = options, files
        peer.log_level = options.log_level or peer.log_level
        peer.options = {
            name: redact_url_text(value) if isinstance(value, str) else value for name, value in options.given.items()
        }

    def _start(self, start: StartByHand) -> None:
        test = unconducted_test(self._role, self._options, start)
        self._launch(start.run, self._id, test)

    def _tell(self, command: Command, payload: NotePayload | None = None) -> dict[str, Any]:
        """Ask the process of a test by hand; its answer."""
        if self._process is None or not self._by_hand:
            raise ConfigError(f"no test by hand is running here, so {command.name} means nothing")
        scope = self._lab.scope_of(self._run)
        deadline_s = time.monotonic() + _TELL_S
        with LabClient(self._url, self._lab, f"{self._id}-standing") as client:
            while time.monotonic() < deadline_s:  # it may not have joined yet
                for identity, _, _ in client.ping(scope, _PING_S):
                    if identity.pid == self._process.pid:
                        return _asked(client, scope, identity, command, payload)
        raise LostError(f"the process of test {self._run} does not answer")

    def _assign(self, role: RoleAssignment, by: Identity) -> None:
        Topics(role.run).peer(role.id)  # a valid id; it also names files
        self._launch(role.run, role.id, None)
        self._assigned_by = by.session

    def _end_orphan(self, peer: Peer) -> None:
        """A process that joined after the last will of its conductor would wait for that for minutes."""
        if self._process is None or self._assigned_by not in peer.lost_sessions:
            return
        self._ends_s = self._ends_s or time.monotonic() + _ORPHAN_S
        if time.monotonic() > self._ends_s:
            peer.log(f"run {self._run}: its conductor was lost")
            self._end_process()

    def _launch(self, run: str, peer_id: str, test: UnconductedTest | None) -> None:
        if self._process is not None:
            raise ConfigError(f"it is busy with run {self._run}")
        directory = self._data / run
        try:
            directory.mkdir(mode=0o700)  # a run never writes to the directory of another
        except FileExistsError:
            raise ConfigError(f"run {run} was here before; ROLE_UNASSIGN deletes what it left") from None
        inputs = self._own_files | ({} if test is None else self._write_files(directory))
        launch = launch_into(self._lab.scope_of(run), self._url, inputs, test)
        self._process = PeerProcess(peer_id, self._role, launch, directory, directory / "logs")
        self._run, self._by_hand = run, test is not None

    def _write_files(self, directory: Path) -> dict[str, str]:
        """Name in the options -> file, for the contents that came in SET."""
        places: dict[str, str] = {}
        for number, (name, content) in enumerate(self._files.items()):
            path = directory / INPUTS / f"file-{number}"
            path.parent.mkdir(mode=0o700, exist_ok=True)
            path.touch(mode=0o600)
            path.write_bytes(content)
            places[name] = str(path)
        return places

    def _unassign(self, run: str) -> None:
        if run == self._run:
            self._end_process()
        shutil.rmtree(self._data / run, ignore_errors=True)

    def _hand_out(self, peer: Peer, request: Note) -> None:
        asked = FileRequest.from_payload(request.payload)
        directory = self._data / asked.run
        files = {
            path.relative_to(directory).as_posix(): path
            for path in sorted(directory.rglob("*"))
            if path.is_file() and not path.is_symlink()
        }
        if not asked.file:
            listing = [(name, path.stat().st_size) for name, path in files.items()]
            peer.reply(
                request, Command.GET, About(0, "", self._lab.scope.name, peer.state, run=asked.run, files=listing)
            )
            return
        if asked.file not in files:
            raise ConfigError(f"run {asked.run} left no file {asked.file!r} here")
        with files[asked.file].open("rb") as file:
            octets = file.seek(0, 2)
            file.seek(asked.offset)
            peer.reply(request, Command.GET, FilePiece(file.read(PIECE_BYTES), octets))

    def _end_process(self) -> None:
        process, self._process, self._run, self._by_hand = self._process, None, "", False
        self._assigned_by, self._ends_s = 0, None
        if process is not None:
            process.stop()


def _asked(
    client: LabClient, scope: NoteScope, process: Identity, command: Command, payload: NotePayload | None
) -> dict[str, Any]:
    try:
        return client.ask(scope, process, command, payload, _TELL_S).payload
    except PeerError as err:  # its reason, once under our common name
        raise ConfigError(str(err).removeprefix(f"{process.id}: ")) from err


def local_address_towards(control_url: str) -> str:
    """The address of this host from which the control broker is reached; nothing is sent."""
    parts = parse_url(control_url)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((parts.host or "127.0.0.1", parts.port or default_port(parts.scheme)))
            address: str = probe.getsockname()[0]
            return address
    except OSError as err:
        raise ConfigError(f"--control: {parts.host} cannot be reached: {err.strerror or err}") from err
