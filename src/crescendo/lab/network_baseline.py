"""What does the network of the lab carry, without any load?

Measured between two hosts just before a run: a rate that is claimed of a system means little beside that of its
network. Each direction alone, then both at once, and the time of a round trip. Judges nothing.
"""

import subprocess
import sys

import msgspec
from msgspec import Struct

from crescendo.lab import throughput_program
from crescendo.lab.lab_host import LabHost
from crescendo.model.errors import LostError
from crescendo.processes.child import ChildProcess, close_pipes, first_line, wait_or_kill

MEASURE_S = 0.25
_START_S, _ANSWER_S = 10.0, 60.0


class NetworkBaseline(Struct, frozen=True):
    """Rates in bits per second of TCP payload, from the host (up) and to it (down)."""

    up_bps: float
    down_bps: float
    both_up_bps: float
    both_down_bps: float
    round_trip_ns: int


def measure_network(host: LabHost, other: LabHost, seconds: float = MEASURE_S) -> NetworkBaseline:
    """Between a host and another, which serves."""
    serving = _launch(other, "serve", other.address)
    try:
        port = first_line(serving, _START_S)
        if not port.isdecimal():
            raise LostError(f"lab: the network of {other.name} could not be measured: {port or 'no answer'}")
        host.open_port(int(port))
        measuring = _launch(host, "measure", other.address, port, str(seconds))
        try:
            result = first_line(measuring, _ANSWER_S)
        finally:
            _end(measuring)
    finally:
        _end(serving)
    try:
        return msgspec.json.decode(result, type=NetworkBaseline)
    except msgspec.DecodeError:
        raise LostError(
            f"lab: the network between {host.name} and {other.name} could not be measured: {result or 'no answer'}"
        ) from None


def _launch(host: LabHost, *arguments: str) -> ChildProcess:
    program = [sys.executable, "-I", "-S", throughput_program.__file__, *arguments]
    return host.launch(program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def _end(process: ChildProcess) -> None:
    wait_or_kill(process, 0)
    close_pipes(process)
