"""A link without packets: what programs on both hosts see of it, and when it is chosen."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crescendo.lab.host_network import HostNetwork
from crescendo.lab.lab_host import LabHost
from crescendo.lab.tcp_link import refuse_packet_keys
from crescendo.model.errors import ConfigError
from crescendo.model.lab_network import CLEAN, Impairment
from crescendo.model.units import Duration, Share
from crescendo.processes.child import ChildProcess, close_pipes
from crescendo.record.manifest import read_manifest
from lab_hosts import needs_namespaces
from test_host_network import within
from test_links import ECHO, TALK, reaches

pytestmark = needs_namespaces
HIDE_TAP = 'mount -t tmpfs tmpfs /dev/net && exec "$@"'
RUN = """
import sys, crescendo
from crescendo.model.errors import CrescendoError
from pathlib import Path
for path in map(Path, sys.argv[1:]):
    try:
        print(crescendo.run(path, out=path.parent, analyze=False).run_dir)
    except CrescendoError as err:
        print("refused:", err)
"""
BULK = """
import socket, sys, time
with socket.create_connection((sys.argv[1], 7002)) as talk:
    talk.settimeout(30)
    data, got = b"x" * 250_000, 0
    begin = time.perf_counter()
    talk.sendall(data); talk.shutdown(socket.SHUT_WR)
    while more := talk.recv(65536): got += len(more)
    print(got, time.perf_counter() - begin)
"""
MANY = """
import socket, sys
for _ in range(300):
    with socket.create_connection((sys.argv[1], 7002)) as one:
        one.sendall(b"x"); assert one.recv(1) == b"x"
"""


@pytest.fixture(scope="module")
def network() -> Iterator[HostNetwork]:
    with HostNetwork() as made:
        made.add_access_points({"a": 0, "b": 0, "far": 1})
        server, station = made.add("server"), made.add("station", access_point="a")
        made.add("other")
        serving = server.launch([sys.executable, "-c", ECHO], stdout=subprocess.PIPE)
        assert serving.stdout is not None
        assert serving.stdout.readline() == b"ready\n"
        close_pipes(serving)
        station.link_over_tcp(server)
        station.open_port(7002)
        yield made


class Talk:
    """A connection of the station to the server that echoes."""

    def __init__(self, network: HostNetwork) -> None:
        station, server = network.hosts["station"], network.hosts["server"]
        program = [sys.executable, "-c", TALK, server.address]
        self._process: ChildProcess = station.launch(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def say(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{text}\n".encode())
        self._process.stdin.flush()

    def heard(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().decode().strip()

    def hears_nothing_for(self, seconds: float) -> bool:
        return not select.select([self._process.stdout], [], [], seconds)[0]

    def round_trip_s(self, text: str) -> float:
        begin_s = time.perf_counter()
        self.say(text)
        assert self.heard() == text
        return time.perf_counter() - begin_s

    def close(self) -> None:
        close_pipes(self._process)
        self._process.wait(10)


@pytest.fixture
def talk(network: HostNetwork) -> Iterator[Talk]:
    made = Talk(network)
    yield made
    made.close()


@pytest.fixture(scope="module")
def station(network: HostNetwork) -> LabHost:
    return network.hosts["station"]


def test_each_direction_has_its_own_delay(station: LabHost, talk: Talk) -> None:
    talk.round_trip_s("first")
    clean_s = min(talk.round_trip_s("clean") for _ in range(10))
    station.impair(Impairment(Duration(30_000_000)), CLEAN)
    up_s = min(talk.round_trip_s("up") for _ in range(10))
    station.impair(Impairment(Duration(30_000_000)), Impairment(Duration(50_000_000)))
    both_s = min(talk.round_trip_s("both") for _ in range(10))
    station.impair(CLEAN, CLEAN)
    assert up_s - clean_s == pytest.approx(0.030, rel=0.1)
    assert both_s - clean_s == pytest.approx(0.080, rel=0.1)


def test_a_rate_decides_how_long_bytes_take_and_none_is_lost(network: HostNetwork, station: LabHost) -> None:
    station.limit(4_000_000, 0)
    command = station.command([sys.executable, "-c", BULK, network.hosts["server"].address])
    got, took_s = subprocess.check_output(command, text=True, timeout=60).split()
    station.limit(0, 0)
    assert int(got) == 250_000
    assert 0.5 <= float(took_s) < 1.5  # two million bits at four million a second


def test_a_cut_link_is_half_open_and_everything_comes_later(station: LabHost, talk: Talk) -> None:
    talk.round_trip_s("before")
    station.leave()
    begin_s = time.perf_counter()
    talk.say("during")
    time.sleep(0.3)
    assert station.join("b") is False
    assert talk.heard() == "during"
    assert time.perf_counter() - begin_s >= 0.3
    talk.round_trip_s("after")


def test_another_network_resets_and_silently_leaves_half_open(network: HostNetwork, station: LabHost) -> None:
    moved, silent = Talk(network), Talk(network)
    moved.round_trip_s("before")
    station.leave()
    assert station.join("far") is True
    moved.say("gone")
    assert moved.heard() in {"Connection reset by peer", "closed", "Broken pipe"}
    moved.close()
    silent.close()
    silent = Talk(network)
    silent.round_trip_s("again")
    station.leave()
    station.join("a", silent=True)
    silent.say("into the void")
    others = station.command([sys.executable, "-c", MANY, network.hosts["server"].address])
    subprocess.run(others, timeout=60, check=True)  # new ones pass, and their garbage is collected
    assert silent.hears_nothing_for(0.1)
    counts = station.tcp_counts
    assert counts is not None
    assert counts.reset >= 1
    assert counts.half_open >= 1
    os.kill(silent._process.pid, signal.SIGKILL)
    silent.close()


def test_other_hosts_do_not_find_the_system_behind_the_link(network: HostNetwork, station: LabHost) -> None:
    """The station has the address of the system, too: asked for it on the network, it must not answer."""
    server, other = network.hosts["server"], network.hosts["other"]
    server.cut()
    try:
        assert not reaches(other, server.address)
    finally:
        server.restore()
    assert within(20, lambda: reaches(other, server.address))
    assert reaches(station, server.address)


def test_loss_is_refused_with_a_sentence_that_names_the_cure(station: LabHost) -> None:
    with pytest.raises(ConfigError, match="station wants loss, which needs a TAP interface") as refused:
        refuse_packet_keys("station", "no such device", CLEAN, Impairment(loss=Share(0.01)))
    assert "run as root with /dev/net/tun" in str(refused.value)
    assert "\n" not in str(refused.value)
    with pytest.raises(ConfigError, match="wants jitter"):
        station.impair(Impairment(Duration(10**7), Duration(10**6)), CLEAN)


def test_a_link_whose_process_was_killed_is_a_failure_of_the_network() -> None:
    with HostNetwork() as network:
        server, station = network.add("server"), network.add("station")
        with pytest.raises(ConfigError, match="system's host"):
            server.link_over_tcp(server)
        station.link_over_tcp(server)
        link = station._tcp_link
        assert link is not None
        os.kill(link._process.pid, signal.SIGKILL)
        assert within(10, lambda: network.failure == "lab: the link of station has ended")


def run_without_tap(*paths: Path) -> list[str]:
    """What real runs say on a machine that has no /dev/net/tun."""
    hidden = ["unshare", "--mount", "--", "sh", "-c", HIDE_TAP, "sh", sys.executable, "-c", RUN, *map(str, paths)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(os.path.isdir, sys.path))}
    done = subprocess.run(hidden, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can hide a device")
def test_a_run_without_tap_interfaces_uses_a_tcp_link_and_says_so(tmp_path: Path) -> None:
    document: dict[str, Any] = {
        "name": "no-tap",
        "system": {"kind": "loopback"},
        "workload": {"address": "queue://x", "rate": 100, "size": 100},
        "phases": {"warmup": "0s", "measure": "1s", "drain": "500ms"},
        "lab": {"system": "server", "hosts": {"server": {}, "station": {"up": {"delay": "40ms"}, "rate": "20Mbit"}}},
        "peers": {"senders": [{"on": "station"}]},
    }
    delayed, lossy = tmp_path / "delayed.yml", tmp_path / "lossy.yml"
    delayed.write_text(json.dumps(document))
    document["lab"]["hosts"]["station"]["up"]["loss"] = "1%"
    lossy.write_text(json.dumps(document))
    run_dir, said = run_without_tap(delayed, lossy)
    lab = read_manifest(Path(run_dir)).lab["hosts"]
    assert lab["station"]["link"].startswith("TCP link")
    assert lab["station"]["why_no_tap"] == "/dev/net/tun: No such file or directory"
    assert lab["station"]["passed"]["up_bytes"] > 100 * 100
    assert 5e6 < lab["station"]["baseline"]["up_bps"] < 25e6
    assert lab["station"]["baseline"]["round_trip_ns"] >= 40_000_000
    assert said.startswith("refused: lab: station wants loss, which needs a TAP interface")
