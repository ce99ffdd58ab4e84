"""Links as the kernels of the hosts see them: impairment, handoffs, and what is left of them."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from broken_nodes import events_of, scheduled
from crescendo.faults.executor import FaultExecutor
from crescendo.lab.host_network import HostNetwork
from crescendo.lab.lab_host import LabHost
from crescendo.lab.link_faults import HOST
from crescendo.lab.packet_link import PacketLink
from crescendo.lab.packet_link_program import TUN_DEVICE
from crescendo.lab.station import Station
from crescendo.model.errors import ConfigError
from crescendo.model.lab_network import CLEAN, Impairment, LabLink
from crescendo.model.units import Duration, LineRate, Share
from crescendo.processes.child import ChildProcess, close_pipes, launch_child
from lab_hosts import needs_namespaces, processes_in_network
from test_host_network import within

pytestmark = needs_namespaces
needs_tap = pytest.mark.skipif(not os.access(TUN_DEVICE, os.R_OK | os.W_OK), reason=f"no access to {TUN_DEVICE}")

PING = """
import json, os, socket, struct, sys, time
probe = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
probe.settimeout(2)
times = []
for number in range(int(sys.argv[2])):
    head = struct.pack("!BBHHH", 8, 0, 0, 77, number)
    total = sum(struct.unpack("!4H", head)); total = (total >> 16) + (total & 0xFFFF)
    start = time.perf_counter()
    probe.sendto(struct.pack("!BBHHH", 8, 0, ~total & 0xFFFF, 77, number), (sys.argv[1], 0))
    while struct.unpack("!BBHHH", probe.recv(1500)[20:28])[::4] != (0, number): pass
    times.append(time.perf_counter() - start)
print(json.dumps(sorted(times)))
"""
FLOOD = """
import socket, sys, time
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.connect((sys.argv[1], 9))
for burst in range(int(sys.argv[2]) // 50):
    for _ in range(50):
        try: sender.send(b"x" * 64)
        except OSError: pass  # nobody listens: the kernel of the other host says so
    time.sleep(0.001)
"""
NUMBERS = """
import socket, struct, sys, time
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in range(int(sys.argv[2])):
    sender.sendto(struct.pack("!I", number) * 16, (sys.argv[1], 7003))
    if number % 10 == 0: time.sleep(0.001)
"""
COUNT = """
import json, socket, struct, sys
taker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
taker.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
taker.bind(("0.0.0.0", 7003)); print("ready", flush=True)
taker.settimeout(20)
seen = []
try:
    while True:
        seen.append(struct.unpack("!I", taker.recv(100)[:4])[0])
        taker.settimeout(1)
except TimeoutError: pass
highest, early = -1, 0
for number in seen:
    early += number > highest + 1
    highest = max(highest, number)
print(json.dumps({"twice": len(seen) - len(set(seen)), "never": int(sys.argv[1]) - len(set(seen)), "early": early}))
"""
TALK = """
import socket, sys
with socket.create_connection((sys.argv[1], 7002)) as talk:
    talk.settimeout(20)
    if sys.argv[2:]: talk.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(sys.argv[2]))
    for line in sys.stdin.buffer:
        try:
            talk.sendall(line); print(talk.recv(100).decode().strip() or "closed", flush=True)
        except OSError as err: print(err.strerror, flush=True); break
"""
ECHO = """
import socket
server = socket.create_server(("0.0.0.0", 7002)); print("ready", flush=True)
import threading
def serve(one):
    while data := one.recv(65536): one.sendall(data)
while True: threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"""
OWNER = """
import json, os, sys
from crescendo.lab.host_network import HostNetwork
from crescendo.model.lab_network import Impairment
from crescendo.model.units import Duration
network = HostNetwork()
network.add_access_points({"a": 0, "b": 1})
host = network.add("station", access_point="a", packet_link=True)
host.impair(Impairment(Duration(10**6)), Impairment())
host.limit(10_000_000, 10_000_000)
host.leave()
print(json.dumps([os.readlink(f"/proc/{pid}/ns/net") for pid in (network._switch.pid, host.keeper)]), flush=True)
sys.stdin.read()
"""


def run_on(host: LabHost, program: str, *arguments: str) -> str:
    command = host.command([sys.executable, "-c", program, *arguments])
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def kernel_count(host: LabHost, direction: str) -> int:
    read = "import sys; print([l.split() for l in open('/proc/net/dev') if 'eth0:' in l][0][int(sys.argv[1])])"
    return int(run_on(host, read, "2" if direction == "received" else "10"))


@pytest.fixture(scope="module")
def network() -> Iterator[HostNetwork]:
    with HostNetwork(seed=5) as made:
        made.add_access_points({"a": 0, "b": 0, "far": 1})
        server = made.add("server")
        made.add("station", access_point="a")
        if os.access(TUN_DEVICE, os.W_OK):
            made.add("rough", packet_link=True)
        serving = server.launch([sys.executable, "-c", ECHO], stdout=subprocess.PIPE)
        assert serving.stdout is not None
        assert serving.stdout.readline() == b"ready\n"
        close_pipes(serving)
        yield made


@needs_tap
def test_a_planted_delay_is_what_ping_sees(network: HostNetwork) -> None:
    rough, server = network.hosts["rough"], network.hosts["server"]
    clean_s = json.loads(run_on(rough, PING, server.address, "50"))
    rough.impair(Impairment(Duration(5_000_000)), CLEAN)
    up_s = json.loads(run_on(rough, PING, server.address, "50"))
    rough.impair(Impairment(Duration(5_000_000)), Impairment(Duration(5_000_000)))
    both_s = json.loads(run_on(rough, PING, server.address, "50"))
    rough.impair(CLEAN, CLEAN)
    # The fastest of fifty, because a neighbour on the processor delays some of them.
    assert up_s[0] - clean_s[0] == pytest.approx(0.005, rel=0.1)
    assert both_s[0] - clean_s[0] == pytest.approx(0.010, rel=0.1)


@needs_tap
def test_a_planted_loss_is_what_the_kernels_count(network: HostNetwork) -> None:
    rough, server = network.hosts["rough"], network.hosts["server"]
    rough.impair(Impairment(loss=Share(0.01)), CLEAN)
    before = kernel_count(rough, "sent"), kernel_count(server, "received")
    run_on(rough, FLOOD, server.address, "40000")
    sent, received = kernel_count(rough, "sent") - before[0], kernel_count(server, "received") - before[1]
    rough.impair(CLEAN, CLEAN)
    # A refusal of the other host takes the place of some, and a link that has to wait for a processor drops others.
    assert sent > 20_000
    assert (sent - received) / sent == pytest.approx(0.01, rel=0.1)


@needs_tap
def test_packets_are_doubled_damaged_and_overtake_on_a_real_link(network: HostNetwork) -> None:
    """The receiver counts: two thousand numbers, each of them twice or out of order, or dropped for its checksum."""
    rough, server = network.hosts["rough"], network.hosts["server"]
    link = Impairment(Duration(3_000_000), Duration(0), Share(0), Share(0.2), Share(0.1), Share(0.05))
    counting = server.launch([sys.executable, "-c", COUNT, "2000"], stdout=subprocess.PIPE)
    assert counting.stdout is not None
    assert counting.stdout.readline() == b"ready\n"
    rough.impair(link, CLEAN)
    run_on(rough, NUMBERS, server.address, "2000")
    seen = json.loads(counting.stdout.readline())
    close_pipes(counting)
    counting.wait(10)
    counts = rough.packet_counts
    rough.impair(CLEAN, CLEAN)
    assert counts is not None
    assert seen["twice"] > 200
    assert seen["early"] > 50
    assert seen["never"] > 20, "UDP drops what its checksum does not fit"
    assert counts.up.duplicated >= seen["twice"]
    assert counts.up.corrupted >= seen["never"]


@contextlib.contextmanager
def broken(station: Station, *faults: dict[str, Any]) -> Iterator[FaultExecutor]:
    executor = FaultExecutor(scheduled(*({"on": station.host.name, "at": 0, **fault} for fault in faults)))
    try:
        executor.aim({HOST: {station.host.name: station}})
        executor.arm(time.monotonic_ns())
        yield executor
    finally:
        executor.end_threads()


def reaches(host: LabHost, address: str, port: int = 7002) -> bool:
    attempt = (
        "import socket, sys\n"
        "try: socket.create_connection((sys.argv[1], int(sys.argv[2])), 1); print('reached')\n"
        "except OSError: pass"
    )
    return run_on(host, attempt, address, str(port)) == "reached\n"


def queues(host: LabHost) -> str:
    """How the kernel of the host limits what leaves it."""
    return subprocess.check_output(host.command(["tc", "qdisc", "show", "dev", "eth0"]), text=True, timeout=10)


def test_a_cut_ends_with_its_fault(network: HostNetwork) -> None:
    station, server = network.hosts["station"], network.hosts["server"]
    with broken(Station(station, LabLink(), 1), {"do": "cut"}) as executor:
        events_of(executor, "fault")
        assert not reaches(station, server.address)
        executor.close()
    assert within(20, lambda: reaches(station, server.address))


def test_one_direction_is_cut_and_the_other_carries(network: HostNetwork) -> None:
    station, server = network.hosts["station"], network.hosts["server"]
    link = LabLink(rate=LineRate(50_000_000))
    receiving, sending = kernel_count(station, "received"), kernel_count(station, "sent")
    with broken(Station(station, link, 1), {"do": "cut", "with": {"direction": "up"}}) as executor:
        (fault,) = events_of(executor, "fault")
        assert fault.detail["means"] == "up only"
        sending = kernel_count(station, "sent")
        assert not reaches(server, station.address)
        assert kernel_count(station, "sent") == sending
        assert kernel_count(station, "received") > receiving, "the request came through, the answer did not"
        executor.close()
    assert "rate 50Mbit" in queues(station), "as the file says"
    station.limit(0, 0)
    assert within(20, lambda: reaches(station, server.address))


@needs_tap
def test_an_impaired_link_returns_to_what_the_file_says(network: HostNetwork) -> None:
    rough, server = network.hosts["rough"], network.hosts["server"]
    link = LabLink(up=Impairment(Duration(20_000_000)), rate_up=LineRate(5_000_000))
    with broken(
        Station(rough, link, 1), {"do": "impair", "with": {"up": {"loss": "100%"}, "rate": "2Mbit"}}
    ) as executor:
        events_of(executor, "fault")
        assert not reaches(rough, server.address)
        assert "rate 2Mbit" in queues(rough)
        executor.close()
    assert json.loads(run_on(rough, PING, server.address, "5"))[0] >= 0.020
    assert "rate 5Mbit" in queues(rough)
    rough.impair(CLEAN, CLEAN)
    rough.limit(0, 0)
    assert "tbf" not in queues(rough)


def test_a_walk_goes_from_one_access_point_to_the_next(network: HostNetwork) -> None:
    station, server = network.hosts["station"], network.hosts["server"]
    home, walking = station.address, Station(station, LabLink(), 1)
    step = {"do": "handoff", "with": {"to": ["b", "far"], "delay": "50ms", "spread": "50ms"}}
    with broken(walking, step | {"every": "400ms", "times": 2}) as executor:
        events_of(executor, "cure", 2)
    shown = subprocess.check_output(station.command(["ip", "-4", "addr", "show", "dev", "eth0"]), text=True, timeout=10)
    assert home not in shown
    assert station.address in shown
    assert within(20, lambda: reaches(station, server.address))
    with broken(walking, step) as executor:
        events_of(executor, "cure")
    assert station.address == home, "and begins again"
    station.leave()
    station.join("a")


def test_a_handoff_ends_with_the_run_and_not_after_its_delay(network: HostNetwork) -> None:
    station, server = network.hosts["station"], network.hosts["server"]
    began_s = time.monotonic()
    with broken(Station(station, LabLink(), 1), {"do": "handoff", "with": {"to": "b", "delay": "60s"}}) as executor:
        events_of(executor, "fault")
        executor.close()
    assert time.monotonic() - began_s < 50
    assert within(20, lambda: reaches(station, server.address))


def test_a_handoff_keeps_the_connection_and_another_network_ends_it(network: HostNetwork) -> None:
    station, server = network.hosts["station"], network.hosts["server"]
    talk = station.launch([sys.executable, "-c", TALK, server.address], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert talk.stdin is not None
    assert talk.stdout is not None

    def say(text: str) -> None:
        assert talk.stdin is not None
        talk.stdin.write(f"{text}\n".encode())
        talk.stdin.flush()

    say("before")
    assert talk.stdout.readline() == b"before\n"
    station.leave()
    say("during")
    time.sleep(0.3)
    assert station.join("b") is False
    assert talk.stdout.readline() == b"during\n"
    say("after")
    assert talk.stdout.readline() == b"after\n"
    home = station.address
    station.leave()
    assert station.join("far") is True
    assert station.address != home
    say("gone")
    assert talk.stdout.readline() == b"Software caused connection abort\n"
    close_pipes(talk)
    talk.wait(10)
    assert run_on(station, "import socket, sys; socket.create_connection((sys.argv[1], 7002), 5); print('reached')",
                  server.address) == "reached\n"  # fmt: skip
    station.leave()
    station.join("a")
    assert station.address == home


def test_a_silent_handoff_leaves_it_to_a_timeout_to_notice(network: HostNetwork) -> None:
    station, server = network.hosts["station"], network.hosts["server"]
    program = [sys.executable, "-c", TALK, server.address, "400"]
    talk = station.launch(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert talk.stdin is not None
    assert talk.stdout is not None
    for text, answer in (("before", b"before\n"), ("gone", b"Connection timed out\n")):
        talk.stdin.write(f"{text}\n".encode())
        talk.stdin.flush()
        assert talk.stdout.readline() == answer
        station.leave()
        station.join("far" if text == "before" else "a", silent=True)
    close_pipes(talk)
    talk.wait(10)


def test_tcp_of_a_host_may_send_again_sooner(network: HostNetwork) -> None:
    station = network.hosts["station"]
    station.retransmit_after(20)
    show = ["ip", "route", "show"]
    routes = subprocess.check_output(station.command(show), text=True, timeout=10)
    assert routes.count("rto_min 20ms") == 2, routes  # in its network, and through the router
    station.leave()
    station.join("far")
    assert subprocess.check_output(station.command(show), text=True, timeout=10).count("rto_min 20ms") == 2
    station.leave()
    station.join("a")


def test_a_host_may_ask_sooner_for_its_neighbours(network: HostNetwork) -> None:
    station = network.hosts["station"]
    station.ask_arp_again_after(200)
    shown = ["ip", "ntable", "show", "dev", "eth0", "name", "arp_cache"]  # another way to the same setting
    assert "retrans 200" in subprocess.check_output(station.command(shown), text=True, timeout=10)
    with pytest.raises(ConfigError, match=r"set arp_retry of station \(Invalid argument\); run as root"):
        station.ask_arp_again_after(-1)


def test_the_same_seed_draws_the_same_delays_of_handoffs(network: HostNetwork) -> None:
    station, server = network.hosts["station"], network.hosts["server"]

    def delays(host: LabHost, seed: int) -> list[float]:
        drawing = Station(host, LabLink(), seed)
        return [drawing.draw() for _ in range(20)]

    assert delays(station, 5) == delays(station, 5)
    assert len({tuple(delays(host, seed)) for host in (station, server) for seed in (5, 6)}) == 4


def test_only_a_packet_link_can_be_impaired(network: HostNetwork) -> None:
    with pytest.raises(ConfigError, match="has no packet link"):
        network.hosts["station"].impair(Impairment(loss=Share(0.5)), CLEAN)
    with pytest.raises(ConfigError, match="not an access point"):
        network.hosts["station"].join("nowhere")


@needs_tap
def test_nothing_of_a_link_is_left_when_the_owner_is_killed() -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert owner.stdout is not None
    networks = json.loads(owner.stdout.readline())
    assert all(processes_in_network(one) for one in networks)
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    close_pipes(owner)
    # Interfaces, rates and routes are of a network, and a network is gone with its last process.
    assert within(20, lambda: not any(processes_in_network(one) for one in networks))
    assert not [name for name in os.listdir("/sys/class/net") if name.startswith(("port", "tap-port", "ap0", "lab"))]


def test_without_a_tap_device_one_sentence_says_so() -> None:
    """The same program on a machine where it may not open the device."""
    elsewhere = (
        "import sys; from crescendo.lab import packet_link_program as program\n"
        "program.TUN_DEVICE = '/nonexistent/tun'; program.main()"
    )

    def start(argv: list[str]) -> ChildProcess:
        return launch_child(
            [sys.executable, "-c", elsewhere, *argv[3:]], on_fork=None, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    with pytest.raises(ConfigError) as refused:
        PacketLink(start, "port2", 1)
    assert "/nonexistent/tun: No such file or directory" in str(refused.value)
    assert "run as root with /dev/net/tun" in str(refused.value)
