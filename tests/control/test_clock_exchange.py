"""Do two real processes find the shift between their clocks, and is a stranger without the key ignored?"""

import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from crescendo.control.clock_exchange import ClockProbe, ClockResponder, clock_id
from crescendo.control.trust import NoteScope
from crescendo.model.clock_estimate import best_of, estimate
from crescendo.processes.child import end_child, first_line, launch_child
from crescendo.processes.die_with_parent import die_with_parent
from lab_hosts import needs_namespaces

SCOPE = NoteScope("clocks", b"k" * 32)
SHIFT_S = 7200
RESPONDER = (
    "import sys\n"
    "from crescendo.control.clock_exchange import ClockResponder, clock_id\n"
    "from crescendo.control.trust import NoteScope\n"
    "responder = ClockResponder(sys.argv[1], NoteScope('clocks', b'k' * 32))\n"
    "print(responder.port, clock_id(), flush=True)\n"
    "sys.stdin.read()\n"
)


@pytest.fixture(scope="module")
def shifted() -> Iterator[tuple[int, str]]:
    """A responder on this machine's loopback interface whose monotonic clock is two hours ahead."""
    argv = ["unshare", "--time", "--monotonic", str(SHIFT_S), "--fork", "--kill-child", sys.executable, "-c", RESPONDER]
    child = launch_child([*argv, "127.0.0.1"], on_fork=die_with_parent(), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    port, _, clock = first_line(child, 60).partition(" ")
    yield int(port), clock
    assert child.stdin is not None
    child.stdin.close()  # it ends then; unshare itself does not heed SIGTERM
    end_child(child, 5)


@needs_namespaces
def test_the_bound_covers_a_planted_shift(shifted: tuple[int, str]) -> None:
    port, clock = shifted
    assert clock != clock_id()
    probe = ClockProbe("127.0.0.1", port, SCOPE)
    samples = [sample for _ in range(3) if (sample := best_of(probe.burst()))]
    probe.close()
    found = estimate(samples)
    error_ns = abs(found.offset_ns + SHIFT_S * 10**9)
    print(f"error {error_ns / 1000:.1f} us, bound {found.bound_ns / 1000:.1f} us")
    assert error_ns <= found.bound_ns


@needs_namespaces
@pytest.mark.quiet
def test_on_a_quiet_machine_the_error_is_tens_of_microseconds(shifted: tuple[int, str]) -> None:
    probe = ClockProbe("127.0.0.1", shifted[0], SCOPE)
    samples = [sample for _ in range(20) if (sample := best_of(probe.burst()))]
    probe.close()
    found = estimate([min(samples, key=lambda sample: sample.bound_ns)])
    assert abs(found.offset_ns + SHIFT_S * 10**9) <= 50_000
    assert found.bound_ns <= 100_000


def test_packets_without_the_key_are_not_answered() -> None:
    responder = ClockResponder("127.0.0.1", SCOPE)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.settimeout(0.3)
            for packet in (b"", b"x" * 24, b"x" * 2000):
                stranger.sendto(packet, ("127.0.0.1", responder.port))
            with pytest.raises(TimeoutError):
                stranger.recv(100)
        wrong = ClockProbe("127.0.0.1", responder.port, NoteScope("clocks", b"w" * 32))
        assert wrong.burst(3) == []
        wrong.close()
        right = ClockProbe("127.0.0.1", responder.port, SCOPE)
        assert right.burst(3) != []
        right.close()
    finally:
        responder.close()
