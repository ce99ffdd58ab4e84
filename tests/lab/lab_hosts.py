"""Networks of hosts for tests, and what the kernel says about them."""

import os
from pathlib import Path

import psutil
import pytest

from crescendo.lab.namespaces import why_not_permitted

WHY_NOT = why_not_permitted()
needs_namespaces = pytest.mark.skipif(bool(WHY_NOT), reason=f"no hosts here: {WHY_NOT}")


def processes_in_network_of(pid: int) -> set[int]:
    """Every process in the same network namespace, as the kernel sees it."""
    return processes_in_network(os.readlink(f"/proc/{pid}/ns/net"))


def processes_in_network(network: str) -> set[int]:
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(process / "ns" / "net") == network:
                found.add(int(process.name))
        except OSError:
            continue
    return found


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
