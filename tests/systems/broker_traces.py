"""How the operating system and a broker's own management see the broker, without any of our code."""

import json
import tempfile
import urllib.error
import urllib.request
from base64 import b64encode
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import psutil

PASSWORD_MARK = "s3cr3t"
"""In every awkward password: letters and digits survive every escaping."""

AWKWARD_PASSWORD = f"a,b:c=d#e!f\\g$h${{i}}j&k<l>m\"n'o%p@q/r{PASSWORD_MARK}"
"""Contains every character with a special meaning in property files, XML, JSON, Spring, JAAS and URLs."""


def listening_addresses(pid: int) -> dict[int, str]:
    """Port -> address, as the kernel reports them."""
    sockets = psutil.Process(pid).net_connections(kind="inet")
    return {found.laddr.port: found.laddr.ip for found in sockets if found.status == psutil.CONN_LISTEN}


def traces_of(pid: int, directory: Path) -> list[str]:
    """What is left of a process that should be gone."""
    left = [f"process {pid}"] if psutil.pid_exists(pid) else []
    left += [str(directory)] if directory.exists() else []
    left += [str(path) for path in Path(tempfile.gettempdir()).glob(f"hsperfdata_*/{pid}")]
    left += [str(path) for path in Path(tempfile.gettempdir()).glob(f".java_pid{pid}*")]
    return left


def get_json(url: str, path: str, *, user: str = "crescendo", password: str = AWKWARD_PASSWORD) -> tuple[int, Any]:
    """The status and the JSON of an answer of the broker's management."""
    parts = urlsplit(url)
    request = urllib.request.Request(
        f"http://{parts.hostname}:{parts.port}{parts.path}" + quote(path, safe="/:=,*?&"),
        headers={"Authorization": "Basic " + b64encode(f"{user}:{password}".encode()).decode()},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as err:
        err.close()
        return err.code, None
