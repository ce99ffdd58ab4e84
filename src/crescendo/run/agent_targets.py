"""How do the faults of a run reach its agents?

Over the control plane, like a command by hand: each thread that carries out a fault has its own connection, asks the
process that takes part in the run, and listens for its notification of the end. Decides nothing.
"""

import threading
from typing import Any

from crescendo.control.agent_payloads import EndedHandler, StartedHandler, UserCommand
from crescendo.control.notes import Command, Identity
from crescendo.control.trust import Lab, NoteScope
from crescendo.model.errors import LostError, PeerError
from crescendo.run.lab_client import LabClient
from crescendo.run.lab_view import LabView

_PING_S = 0.2
_TRIES = 20
_START_S = 10.0
_SHOWN_CHARS = 200


class AgentOfRun:
    """One agent, as faults see it."""

    def __init__(self, control_url: str, lab: Lab, scope: NoteScope, peer_id: str) -> None:
        self._url, self._lab, self._scope, self._id = control_url, lab, scope, peer_id
        self._connections = threading.local()

    def connect(self) -> None:
        client = LabClient(self._url, self._lab, f"fault-{threading.get_ident()}", listen=True)
        client.connect()
        self._connections.client, self._connections.view = client, LabView(client)
        self._connections.process = self._found(client)

    def run(self, command: str, parameters: dict[str, Any], cure: str = "") -> str:
        client: LabClient = self._connections.client
        process: Identity = self._connections.process
        wanted = UserCommand(command, parameters, cure)
        answer = client.ask(self._scope, process, Command.USER_COMMAND_1, wanted, _START_S)
        started = StartedHandler.from_payload(answer.payload)
        note = self._connections.view.await_handler(process, started.handler)
        ended = EndedHandler.from_payload(note.payload)
        if note.command is not Command.NOTIFY_SUCCESS:
            how = ended.reason or f"it exited with code {ended.code}"
            raise PeerError(f"{command}: {how}: {ended.output[:_SHOWN_CHARS].strip()}")
        return ended.output[:_SHOWN_CHARS].strip()

    def disconnect(self) -> None:
        client: LabClient | None = getattr(self._connections, "client", None)
        self._connections.client = None
        if client is not None:
            client.close()

    def _found(self, client: LabClient) -> Identity:
        for _ in range(_TRIES):
            for identity, _, _ in client.ping(self._scope, _PING_S):
                if identity.id == self._id:
                    return identity
        raise LostError(f"{self._id} does not answer")
