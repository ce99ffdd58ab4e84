"""How well are clocks compared, how fast does a recording come home, and when is a cluster ready?

Clocks: a process whose clock a time namespace has set ahead, compared as in a run of some seconds. Collection: the same
files fetched over HTTP and HTTPS with their hashes, and copied by `cp`, in one run. A cluster: one sshd of this machine
that an inventory names once and six times, with an installation that is there, and with one that is made from wheels.
All hosts share the cores and the disk of this machine, so six are the worst case.
"""

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from crescendo.cluster.cluster_file import read_plan
from crescendo.cluster.cluster_lifecycle import ClusterAccess, bring_up, take_down
from crescendo.control.trust import Lab
from crescendo.lab.namespaces import why_not_permitted
from crescendo.model.errors import PeerError
from crescendo.net.sockets import connect
from crescendo.processes.child import close_pipes, end_child, first_line, launch_child
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.record.manifest import JOURNAL, PartRecord, sha256_of
from crescendo.run.host_clocks import ClockAddress, HostClocks
from crescendo.run.recording_fetch import RecordingSource
from crescendo.run.recording_server import RecordingServer, file_token
from crescendo.systems.instance import start
from crescendo.systems.registry import system_of

LAB = Lab("be4c" * 12)
RUN = "0123456789abcdef"
FILES, FILE_MB = 20, 20
SHIFTS_S, COMPARED_S = (3_600, 86_400), 5.0
RESPONDER = (
    "import sys\n"
    "from crescendo.control.clock_exchange import ClockResponder\n"
    "from crescendo.control.trust import Lab\n"
    "responder = ClockResponder('127.0.0.1', Lab('be4c' * 12).scope)\n"
    "print(responder.port, flush=True)\n"
    "sys.stdin.read()\n"
)


def main() -> None:
    for shift_s in SHIFTS_S:
        _measure_clock(shift_s)
    with tempfile.TemporaryDirectory() as directory:
        _measure_collection(Path(directory))
    if (sshd := shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")) is None:
        print("cluster: not measured, because there is no sshd")
        return
    with tempfile.TemporaryDirectory() as directory:
        _measure_clusters(Path(directory), sshd)


def _measure_clock(shift_s: int) -> None:
    if why_not := why_not_permitted():
        print(f"clocks: not measured, because {why_not}")
        return
    argv = ["unshare", "--time", "--monotonic", str(shift_s), "--fork", "--kill-child", sys.executable, "-c", RESPONDER]
    child = launch_child(argv, on_fork=die_with_parent(), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    address = ClockAddress("ahead", "another", "127.0.0.1", int(first_line(child, 60)), 0)
    with contextlib.closing(HostClocks({address.host: address}, LAB.scope)) as clocks:
        time.sleep(COMPARED_S)
        (found,) = clocks.finish()
    error_ns = abs(found.offset_ns + shift_s * 10**9)
    print(
        f"clock {shift_s:,} s ahead: error {error_ns / 1000:.1f} µs, bound {found.bound_ns / 1000:.1f} µs "
        "(wanted: at most 50 and 100)"
    )
    close_pipes(child)
    end_child(child, 5.0)


def _measure_collection(directory: Path) -> None:
    left = directory / "data" / RUN / "sent"
    left.mkdir(parents=True)
    journal = left.parent / JOURNAL / "sender-0.jsonl"
    journal.parent.mkdir()
    for number in range(FILES):
        part = left / f"sender-0-{number}.parquet"
        part.write_bytes(os.urandom(FILE_MB * 10**6))
        sealed = PartRecord(f"sent/{part.name}", "sent", "sender-0", 1, part.stat().st_size, sha256_of(part))
        with journal.open("ab") as lines:
            lines.write(msgspec.json.encode(sealed) + b"\n")
    megabytes = FILES * FILE_MB
    started = time.perf_counter()
    subprocess.run(["cp", "-r", str(left.parent), str(directory / "copied")], check=True)
    copied = megabytes / (time.perf_counter() - started)
    print(f"cp                     {copied:7.0f} MB/s")
    for name, address in (("HTTP", "127.0.0.1"), ("HTTPS", _own_address())):
        if address is None:
            continue
        server = RecordingServer(address, directory / "data", LAB)
        source = RecordingSource("bench", address, server.port, server.authority, RUN, file_token(LAB.scope_of(RUN)))
        started = time.perf_counter()
        source.fetch_all(directory / name)
        rate = megabytes / (time.perf_counter() - started)
        source.close()
        server.close()
        print(f"collection over {name:6} {rate:7.0f} MB/s, {rate / copied:.2f} of cp")


def _own_address() -> str | None:
    """An address of this machine that is not loopback; nothing is sent."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])
    return None


def _measure_clusters(directory: Path, sshd: str) -> None:
    instance = start(system_of("mosquitto"), {}, directory=directory / "broker", on_fork=die_with_parent())
    try:
        with _sshd(directory, sshd) as port:
            access = ClusterAccess(instance.url, LAB)
            for installed in (True, False):
                for hosts in (1, 6):
                    _measure_cluster(directory, port, access, hosts, installed)
    finally:
        instance.stop()


def _measure_cluster(directory: Path, port: int, access: ClusterAccess, hosts: int, installed: bool) -> None:
    inventory = directory / "hosts.ini"
    variables = {
        "ansible_host": "127.0.0.1",
        "ansible_port": port,
        "ansible_user": getpass.getuser(),
        "ansible_ssh_private_key_file": directory / "key",
        "ansible_ssh_common_args": f"-F none -o StrictHostKeyChecking=no -o UserKnownHostsFile={directory / 'known'}",
        "ansible_python_interpreter": sys.executable,
        "crescendo_directory": directory / "on-hosts",
        **({"crescendo_python": sys.executable} if installed else {}),
    }
    lines = ["[senders]", *(f"h{number}" for number in range(hosts)), "[all:vars]"]
    inventory.write_text("\n".join([*lines, *(f"{key}={value}" for key, value in variables.items())]) + "\n")
    plan = read_plan(inventory)
    times = []
    for _ in range(2):
        started = time.perf_counter()
        bring_up(plan, access, lambda _: None)
        times.append(time.perf_counter() - started)
    started = time.perf_counter()
    take_down(plan, access.lab, lambda _: None)
    down_s = time.perf_counter() - started
    how = "installed already" if installed else "with installation"
    print(f"{hosts} host(s), {how}: ready in {times[0]:.1f} s, again {times[1]:.1f} s, down {down_s:.1f} s", flush=True)


@contextlib.contextmanager
def _sshd(directory: Path, program: str) -> Iterator[int]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    for key in ("key", "host_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / key)], check=True)
    config = directory / "sshd.conf"
    config.write_text(
        f"ListenAddress 127.0.0.1:{port}\nHostKey {directory / 'host_key'}\nPidFile none\nUsePAM no\nStrictModes no\n"
        f"AuthorizedKeysFile {directory / 'key.pub'}\nPasswordAuthentication no\nMaxStartups 100\n"
    )
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    child = launch_child(
        [program, "-D", "-e", "-f", str(config)], on_fork=die_with_parent(), log=directory / "sshd.log"
    )  # fmt: skip
    try:
        deadline_s = time.monotonic() + 20
        while True:
            try:
                connect("127.0.0.1", port).close()
                break
            except PeerError:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.05)
        yield port
    finally:
        end_child(child, 5.0)
