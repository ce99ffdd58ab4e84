"""An account without any rights can have hosts too; where it cannot, one sentence names what is missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from crescendo.lab.packet_link_program import TUN_DEVICE
from lab_hosts import needs_namespaces

STRANGER = "4242"
AS_STRANGER = ["setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups"]
SYSTEM_PYTHON = "/usr/bin/python3"
MOVES = """
import subprocess
from crescendo.lab.host_network import HostNetwork
from crescendo.model.errors import CrescendoError
with HostNetwork() as network:
    network.add_access_points({"home": 0, "street": 1})
    server, station = network.add("server"), network.add("station", access_point="home")
    station.limit(20_000_000, 20_000_000)
    station.retransmit_after(20)
    station.leave()
    print(station.join("street"), station.address, server.listener(7000).getsockname()[1])
    try:
        network.add("rough", packet_link=True)
        print("impaired")
    except CrescendoError as err:
        print(err)
"""
REFUSED = """
from crescendo.lab.namespaces import why_not_permitted
print(why_not_permitted())
"""


def as_stranger(program: str, *, before: tuple[str, ...] = ()) -> list[str]:
    """What a program says when an account without rights runs it. Our own Python may be in a home of its own."""
    libraries = [path for path in sys.path if Path(path).is_dir()]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(libraries), "HOME": "/nonexistent"}
    for python in (os.path.realpath(sys.executable), SYSTEM_PYTHON):
        command = [*AS_STRANGER, *before, python, "-c"]
        usable = subprocess.run(
            [*command, "import crescendo.lab.host_network"],
            env=environment,
            capture_output=True,
            timeout=60,
            check=False,
        )
        if usable.returncode == 0 and Path(python).stat().st_mode & 0o001 and _reachable(Path(python)):
            done = subprocess.run(
                [*command, program], env=environment, capture_output=True, text=True, timeout=60, check=False
            )
            assert done.returncode == 0, done.stderr
            return done.stdout.splitlines()
    pytest.skip("another account cannot run a Python with our libraries")


def _reachable(path: Path) -> bool:
    return all(folder.stat().st_mode & 0o001 for folder in path.parents)


@needs_namespaces
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another account")
def test_hosts_move_without_rights_and_a_missing_device_is_one_sentence() -> None:
    moved, link = as_stranger(MOVES)
    assert moved == "True 10.77.1.3 7000"
    if os.stat(TUN_DEVICE).st_mode & 0o006 == 0o006:
        assert link == "impaired"
    else:
        assert "(/dev/net/tun: Permission denied); run as root with /dev/net/tun, or leave them out" in link


@needs_namespaces
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another account")
def test_a_kernel_that_refuses_is_one_sentence_with_its_cure() -> None:
    """Inside a user namespace that allows no other, as on machines that forbid them."""
    forbid = 'echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-sys_admin "$@"'
    inside = ("unshare", "--user", "--map-current-user", "--keep-caps", "--", "sh", "-c", forbid, "sh")
    (said,) = as_stranger(REFUSED, before=inside)
    assert "the kernel refuses namespaces" in said
    assert "allow user namespaces (sysctl user.max_user_namespaces), or run as root" in said
