"""A host whose clock is unknown is refused, and so are two hosts that a recording could not tell apart."""

import gc
import socket

import pytest

from crescendo.control.trust import NoteScope
from crescendo.model.errors import ConfigError
from crescendo.run import host_clocks
from crescendo.run.host_clocks import ClockAddress, HostClocks, clock_addresses

SCOPE = NoteScope("clocks", b"k" * 32)


def test_a_host_that_does_not_answer_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_clocks, "_EDGE_BURSTS", 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        asked = ClockAddress("far", "another clock", "127.0.0.1", port, 0)
        with pytest.raises(ConfigError) as refused:
            HostClocks(clock_addresses([asked]), SCOPE)
    assert str(refused.value) == (
        "the clock of far cannot be compared with the conductor's: no answer from 127.0.0.1 on UDP port "
        f"{port}; let it pass, or start the peer with --listen ADDRESS"
    )
    del refused
    gc.collect()  # a socket that was left open would be a warning, and warnings are errors


def test_two_hosts_of_one_name_are_refused() -> None:
    one, other = (ClockAddress("far", clock, "127.0.0.1", 1, 0) for clock in ("one", "other"))
    with pytest.raises(ConfigError, match="two hosts with different clocks are called far; give them different names"):
        clock_addresses([one, other])
