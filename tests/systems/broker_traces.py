"""What others than ourselves say of a broker: the operating system, and its own management by the standard library."""

import json
import tempfile
import urllib.error
import urllib.request
from base64 import b64encode
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import psutil

AWKWARD_PASSWORD = "a,b:c=d#e!f\\g$h${i}j&k<l>m\"n'o%p@q/r"
"""Holds whatever property files, XML, JSON, Spring, JAAS and URLs give a meaning to."""


def listening_addresses(pid: int) -> dict[int, str]:
    """Port -> address, as the kernel has them."""
    found = psutil.Process(pid).net_connections(kind="inet")
    return {one.laddr.port: one.laddr.ip for one in found if one.status == psutil.CONN_LISTEN}


def traces_of(pid: int, directory: Path) -> list[str]:
    """What is still there of a process that should be gone."""
    left = [f"process {pid}"] if psutil.pid_exists(pid) else []
    left += [str(directory)] if directory.exists() else []
    left += [str(path) for path in Path(tempfile.gettempdir()).glob(f"hsperfdata_*/{pid}")]
    left += [str(path) for path in Path(tempfile.gettempdir()).glob(f".java_pid{pid}*")]
    return left


def ask(url: str, path: str, *, user: str = "crescendo", password: str = AWKWARD_PASSWORD) -> tuple[int, Any]:
    """The status and the JSON that the broker's management answers."""
    where = urlsplit(url)
    request = urllib.request.Request(
        f"http://{where.hostname}:{where.port}{where.path}" + quote(path, safe="/:=,*?&"),
        headers={"Authorization": "Basic " + b64encode(f"{user}:{password}".encode()).decode()},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as err:
        err.close()
        return err.code, None
