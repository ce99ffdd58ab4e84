"""How does a link lose, delay, double and damage packets on a kernel without netem?

A process of its own carries them between two TAP interfaces (`packet_link_program.py`); this is its handle. It is used
on kernels with netem too: before Linux 6.7 netem draws its losses from a generator that cannot be seeded, and the same
seed must give the same schedule on every machine.
"""

import sys
import threading
from collections.abc import Callable

import msgspec

from crescendo.lab.packet_link_program import CountPackets, ImpairLink, LinkCounts, LinkRequest
from crescendo.lab.switch_requests import OK
from crescendo.model.errors import ConfigError, LostError
from crescendo.model.lab_network import Impairment
from crescendo.model.units import format_unit
from crescendo.processes.child import ChildProcess, close_pipes, first_line, wait_or_kill

MECHANISM = "TAP link: a process carries every packet, with losses and delays drawn from the seed"
_READY_S, _ANSWER_S, _END_S = 30.0, 10.0, 5.0


class NoTapError(ConfigError):
    """This machine has no TAP interface for us; the text of the cause alone is in `why`."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"lab: links with loss or jitter need a TAP interface, and there is none here ({why}); "
            "run as root with /dev/net/tun, or leave them out"
        )
        self.why = why


class PacketLink:
    """A pair of TAP interfaces in the network of the switch, and the process between them."""

    def __init__(self, start: Callable[[list[str]], ChildProcess], port: str, seed: int) -> None:
        """`start` starts a program in the network of the switch, with pipes. The link is clean at first."""
        self.inside = f"tap-{port}"
        self._asking = threading.Lock()
        self._process = start([sys.executable, "-m", "crescendo.lab.packet_link_program", port, self.inside, str(seed)])
        answer = first_line(self._process, _READY_S)
        if answer != OK:
            self.close()
            raise NoTapError(answer or "the link said nothing")

    def impair(self, up: Impairment, down: Impairment) -> None:
        answer = self._ask(ImpairLink(up, down))
        if answer != OK:
            raise LostError(f"lab: a packet link refuses its impairment: {answer}")

    def counts(self) -> LinkCounts:
        return msgspec.json.decode(self._ask(CountPackets()), type=LinkCounts)

    @property
    def ended(self) -> bool:
        """Whether its process has ended, although nobody closed it."""
        return self._process.poll() is not None

    def close(self) -> None:
        """End the process; both interfaces go with it. Safe to call twice."""
        close_pipes(self._process)
        wait_or_kill(self._process, _END_S)

    def _ask(self, request: LinkRequest) -> str:
        assert self._process.stdin is not None  # noqa: S101 - it was started with a pipe
        with self._asking:
            try:
                self._process.stdin.write(msgspec.json.encode(request, enc_hook=format_unit) + b"\n")
                self._process.stdin.flush()
            except OSError as err:
                raise LostError(f"lab: a packet link has ended: {err.strerror}") from err
            answer = first_line(self._process, _ANSWER_S)
        if not answer:
            raise LostError("lab: a packet link does not answer")
        return answer
