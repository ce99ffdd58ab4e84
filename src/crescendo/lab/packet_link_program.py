"""Which process carries the packets of an impaired link?

This one, as `python -m crescendo.lab.packet_link_program PORT INSIDE SEED`, in the network of the switch. It makes two
TAP interfaces, reads every frame from one and writes it to the other, later, twice, damaged or never, as the schedule
says. The kernels of both hosts see real losses and repeat what was lost. One request per line (JSON) on its standard
input changes the impairment or asks for counts; each is answered with one line. When its input ends it exits, and the
kernel removes both interfaces. Decides nothing about packets itself, and connects nothing.
"""

import contextlib
import fcntl
import os
import select
import struct
import sys
import time
from dataclasses import dataclass, field

import msgspec
from msgspec import Struct

from crescendo.lab.impairment_schedule import DelayLine, Direction, ImpairmentSchedule, with_changed_bit
from crescendo.lab.switch_requests import OK
from crescendo.model.lab_network import CLEAN, Impairment
from crescendo.model.units import parse_unit

TUN_DEVICE = "/dev/net/tun"
_TUNSETIFF = 0x400454CA
_IFF_TAP, _IFF_NO_PI = 0x0002, 0x1000
_FRAME_BYTES = 2048
_FRAMES_PER_TURN = 64
_ETHERNET_HEADER_BYTES = 14
_MAX_WAIT_S = 1.0


class ImpairLink(Struct, frozen=True, tag="impair"):
    """What each direction does from now on."""

    up: Impairment
    down: Impairment


class CountPackets(Struct, frozen=True, tag="count"):
    """Answered with the counts of both directions."""


LinkRequest = ImpairLink | CountPackets


class PacketCounts(Struct):
    """Of one direction: frames that were read, and what was done to them."""

    frames: int = 0
    lost: int = 0
    duplicated: int = 0
    overtook: int = 0
    corrupted: int = 0


class LinkCounts(Struct, frozen=True):
    """Of both directions."""

    up: PacketCounts
    down: PacketCounts


@dataclass
class Lane:
    """One direction: from one interface to the other."""

    source: int
    target: int
    schedule: ImpairmentSchedule
    impairment: Impairment = CLEAN
    line: DelayLine[bytes] = field(default_factory=DelayLine)
    counts: PacketCounts = field(default_factory=PacketCounts)

    def read(self) -> None:
        """Take the frames that wait, and send or delay each."""
        for _ in range(_FRAMES_PER_TURN):
            try:
                frame = os.read(self.source, _FRAME_BYTES)
            except OSError:  # no more frames, or the interface is down
                return
            self.counts.frames += 1
            fate = self.schedule.next_fate(self.impairment)
            if fate.corrupt_at is not None:
                frame = with_changed_bit(frame, fate.corrupt_at, _ETHERNET_HEADER_BYTES)
            self._count(fate.delays_ns, corrupted=fate.corrupt_at is not None, overtakes=fate.overtakes)
            if self.line.next_due_ns is None and fate.delays_ns == (0,):
                self.write(frame)
            else:
                self.line.add(frame, time.monotonic_ns(), fate)

    def _count(self, delays_ns: tuple[int, ...], *, corrupted: bool, overtakes: bool) -> None:
        counts = self.counts
        counts.lost += not delays_ns
        counts.duplicated += len(delays_ns) > 1
        counts.corrupted += corrupted
        counts.overtook += overtakes

    def write_due(self) -> None:
        for frame in self.line.due(time.monotonic_ns()):
            self.write(frame)

    def write(self, frame: bytes) -> None:
        with contextlib.suppress(OSError):  # the other interface is down: as on a cable that was pulled out
            os.write(self.target, frame)


def open_tap(name: str) -> int:
    fd = os.open(TUN_DEVICE, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI))
    return fd


def carry(lanes: dict[Direction, Lane], requests: int) -> None:
    """Carry frames until the requests end."""
    decoder = msgspec.json.Decoder(LinkRequest, dec_hook=parse_unit)
    by_fd = {lane.source: lane for lane in lanes.values()}
    unread = b""
    while True:
        # select, not epoll: its timeout is in microseconds, and a millisecond would be a fifth of a delay of 5 ms.
        ready, _, _ = select.select([requests, *by_fd], [], [], _wait_s(lanes))
        for fd in ready:
            if fd != requests:
                by_fd[fd].read()
                continue
            data = os.read(requests, 65536)
            if not data:
                return
            *lines, unread = (unread + data).split(b"\n")
            for line in lines:
                print(_answer(decoder.decode(line), lanes), flush=True)
        for lane in lanes.values():
            lane.write_due()


def _wait_s(lanes: dict[Direction, Lane]) -> float:
    due = [lane.line.next_due_ns for lane in lanes.values() if lane.line.next_due_ns is not None]
    return min(max((min(due) - time.monotonic_ns()) / 1e9, 0), _MAX_WAIT_S) if due else _MAX_WAIT_S


def _answer(request: LinkRequest, lanes: dict[Direction, Lane]) -> str:
    match request:
        case ImpairLink(up, down):
            lanes["up"].impairment, lanes["down"].impairment = up, down
            return OK
        case CountPackets():
            return msgspec.json.encode(LinkCounts(lanes["up"].counts, lanes["down"].counts)).decode()


def main() -> None:
    port, inside, seed = sys.argv[1:]
    try:
        outer, inner = open_tap(port), open_tap(inside)
    except OSError as err:
        print(f"{TUN_DEVICE}: {err.strerror}", flush=True)
        return
    print(OK, flush=True)
    up = Lane(inner, outer, ImpairmentSchedule(int(seed), port, "up"))
    down = Lane(outer, inner, ImpairmentSchedule(int(seed), port, "down"))
    carry({"up": up, "down": down}, sys.stdin.fileno())


if __name__ == "__main__":
    main()
