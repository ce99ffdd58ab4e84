"""Hosts as namespaces: they reach each other and nothing else, links are cut and limited, and nothing survives."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from crescendo.cli.doctor import doctor
from crescendo.lab.host_network import HostNetwork
from crescendo.lab.lab_host import LabHost
from crescendo.lab.ownership import LAB_VARIABLE, owner_mark
from crescendo.model.errors import ConfigError
from crescendo.processes.child import close_pipes
from lab_hosts import is_running, needs_namespaces, processes_in_network

pytestmark = needs_namespaces
ECHO = (
    "import socket, sys\n"
    "server = socket.create_server((sys.argv[1], 7000))\n"
    "print('ready', flush=True)\n"
    "while True:\n"
    "    connection, _ = server.accept()\n"
    "    while data := connection.recv(65536): connection.sendall(data)\n"
)
CALL = (
    "import socket, sys, time\n"
    "octets = int(sys.argv[2])\n"
    "with socket.create_connection((sys.argv[1], 7000), 60) as c:\n"
    "    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)\n"
    "    start = time.perf_counter()\n"
    "    for _ in range(octets // 4096):\n"
    "        c.sendall(b'x' * 4096)\n"
    "        left = 4096\n"
    "        while left: left -= len(c.recv(left))\n"
    "    print(time.perf_counter() - start)\n"
)
OWNER = (
    "import json, subprocess, sys\n"
    "from crescendo.lab.host_network import HostNetwork\n"
    "network = HostNetwork()\n"
    "host = network.add('alpha')\n"
    # A daemon, which no longer has a parent that could end it.
    'spawn = \'import subprocess as s; print(s.Popen(["sleep", "600"], stdout=-3, start_new_session=True).pid)\'\n'
    "made = host.launch([sys.executable, '-c', spawn], stdout=subprocess.PIPE)\n"
    "daemon = int(made.communicate()[0])\n"
    "import os\n"
    "print(json.dumps([daemon, os.readlink(f'/proc/{daemon}/ns/net')]), flush=True)\n"
    "sys.stdin.read()\n"
)


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def serve(host: LabHost) -> None:
    child = host.launch([sys.executable, "-c", ECHO, host.address], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    close_pipes(child)


def call(host: LabHost, address: str, octets: int) -> float:
    done = subprocess.run(
        host.command([sys.executable, "-c", CALL, address, str(octets)]), capture_output=True, timeout=100, check=True
    )
    return float(done.stdout)


@pytest.fixture(scope="module", params=[None, True], ids=["root", "rootless"])
def network(request: pytest.FixtureRequest) -> Iterator[HostNetwork]:
    if request.param is None and os.geteuid() != 0:
        pytest.skip("the other parameter is how this account does it")
    with HostNetwork(rootless=request.param) as made:
        made.add("alpha")
        made.add("beta", clock_shift_s=5000)
        serve(made.hosts["beta"])
        yield made


def test_hosts_have_names_clocks_and_a_network_of_their_own(network: HostNetwork) -> None:
    ask = "import socket, time; print(socket.gethostname(), time.monotonic_ns())"
    seen = {}
    for name, host in network.hosts.items():
        before = time.monotonic_ns()
        said = subprocess.check_output(host.command([sys.executable, "-c", ask]), timeout=30).decode().split()
        assert said[0] == name
        seen[name] = (int(said[1]) - before, int(said[1]) - time.monotonic_ns())
    assert seen["alpha"][1] <= 0 <= seen["alpha"][0]
    assert seen["beta"][1] <= 5000 * 10**9 <= seen["beta"][0]
    reached = subprocess.check_output(
        network.hosts["alpha"].command([sys.executable, "-c", "import socket; print(socket.if_nameindex())"]),
        timeout=30,
    )
    assert b"'lo'" in reached
    assert reached.count(b"(") == 2, reached  # lo and the link to the switch, nothing of the machine


def test_a_cut_link_carries_nothing_until_it_is_restored(network: HostNetwork) -> None:
    alpha, beta = network.hosts["alpha"], network.hosts["beta"]
    call(alpha, beta.address, 4096)
    beta.cut()
    attempt = (
        "import socket, sys\n"
        "try: socket.create_connection((sys.argv[1], 7000), 0.3).close()\n"
        "except OSError: print('unreachable')"
    )
    said = subprocess.check_output(alpha.command([sys.executable, "-c", attempt, beta.address]), timeout=30)
    assert said == b"unreachable\n"
    beta.restore()
    call(alpha, beta.address, 4096)


def test_a_limited_link_takes_as_long_as_its_rate_says(network: HostNetwork) -> None:
    alpha, beta = network.hosts["alpha"], network.hosts["beta"]
    octets = 1024 * 1024
    beta.limit(10_000_000, 10_000_000)
    limited_s = call(alpha, beta.address, octets)
    beta.limit(0, 0)
    # The bucket may hold 32 KiB before the limit shows, in each direction.
    assert limited_s >= (octets - 2 * 32 * 1024) * 8 / 10_000_000
    assert call(alpha, beta.address, octets) < limited_s


def test_bad_names_are_refused(network: HostNetwork) -> None:
    for name in ("", "Alpha", "a b", "alpha"):
        with pytest.raises(ConfigError, match="host name"):
            network.add(name)


def test_the_example_of_the_page_runs(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "lab.md"
    program = page.read_text().partition("```python\n")[2].partition("```")[0]
    assert "broker.limit(" in program
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        [sys.executable, "-c", program.replace("/tmp/sender", str(tmp_path))],  # noqa: S108 - the page's own
        env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_nothing_is_left_when_the_owner_is_killed() -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert owner.stdout is not None
    daemon, its_network = json.loads(owner.stdout.readline())
    assert daemon in processes_in_network(its_network)
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    close_pipes(owner)
    assert within(20, lambda: not processes_in_network(its_network))


def test_what_a_lab_left_is_ended_by_doctor_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    """As after a kill of everything at once: a process with the mark of an owner that has ended."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    left = subprocess.Popen(["sleep", "600"], env={**os.environ, LAB_VARIABLE: f"{gone.pid} never"})
    used = subprocess.Popen(["sleep", "600"], env={**os.environ, LAB_VARIABLE: owner_mark()})
    other = subprocess.Popen(["sleep", "600"])
    try:
        doctor(clean=True, as_json=True)
        assert f"ended sleep ({left.pid}), which a killed lab left" in capsys.readouterr().err
        assert not is_running(left.pid)
        assert is_running(used.pid)
        assert is_running(other.pid)
    finally:
        for process in (left, used, other):
            process.kill()
            process.wait()
