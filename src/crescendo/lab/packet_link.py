"""How does a link lose, delay, double and damage packets on a kernel without netem?

A process of its own carries them between two TAP interfaces (`packet_link_program.py`); this is its handle. It is used
on kernels with netem too: before Linux 6.7 netem draws its losses from a generator that cannot be seeded, and the same
seed must give the same schedule on every machine.
"""

import sys

import msgspec

from crescendo.lab.link_process import LinkProcess, StartProgram
from crescendo.lab.packet_link_program import CountPackets, ImpairLink, LinkCounts
from crescendo.model.errors import ConfigError
from crescendo.model.lab_network import Impairment

MECHANISM = "TAP link: a process carries every packet, with losses and delays drawn from the seed"


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

    def __init__(self, start: StartProgram, port: str, seed: int) -> None:
        """`start` starts a program in the network of the switch. The link is clean at first."""
        self.inside = f"tap-{port}"
        argv = [sys.executable, "-m", "crescendo.lab.packet_link_program", port, self.inside, str(seed)]
        self._process = LinkProcess(start, argv, "a packet link")
        if why := self._process.why_not_ready():
            raise NoTapError(why)

    def impair(self, up: Impairment, down: Impairment) -> None:
        self._process.order(ImpairLink(up, down))

    def counts(self) -> LinkCounts:
        return msgspec.json.decode(self._process.ask(CountPackets()), type=LinkCounts)

    @property
    def ended(self) -> bool:
        """Whether its process has ended, although nobody closed it."""
        return self._process.ended

    def close(self) -> None:
        """End the process; both interfaces go with it. Safe to call twice."""
        self._process.close()
