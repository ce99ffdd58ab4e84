"""A real server in a process of its own, and clients of it."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

STARTED_S = 60.0


class WebLab:
    """One `crescendo web`. It can be killed and started again on the same directory."""

    def __init__(self, runs: Path, *options: str, prefix: tuple[str, ...] = ()) -> None:
        """`prefix` is a command that runs the server elsewhere, on a host of a network."""
        self.runs = runs
        self._prefix = prefix
        self._options = options
        self._port = 0
        self.link = ""
        self.start()

    def start(self) -> None:
        web = ["web", "--out", str(self.runs), "--port", str(self._port)]
        command = [*self._prefix, sys.executable, "-m", "crescendo.cli.main", *web]
        self.process = subprocess.Popen(
            [*command, *self._options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"https?://\S+", line)
        assert found, f"{line}{self.process.stdout.read()}"
        self.link = found.group()
        self._port = int(httpx.URL(self.link).port or 0)

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._close()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(30)
        self._close()
        return code

    def _close(self) -> None:
        if self.process.stdout is not None:
            self.process.stdout.close()

    @contextmanager
    def client(self, link: str = "") -> Iterator[httpx.Client]:
        """A program that is signed in, and sends the token with every change."""
        with httpx.Client(base_url=self.origin, timeout=60, headers={"accept": "application/json"}) as client:
            assert client.get(link or self.link).status_code == 303
            client.headers["x-csrf-token"] = client.get("/api/session").json()["csrf"]
            yield client


@contextmanager
def web_lab(runs: Path, *options: str, prefix: tuple[str, ...] = ()) -> Iterator[WebLab]:
    lab = WebLab(runs, *options, prefix=prefix)
    try:
        yield lab
    finally:
        if lab.process.poll() is None:
            lab.stop()


def live_samples(job: Path) -> list[dict[str, Any]]:
    """What the live page of a job learned about the peers, one sample per second."""
    return [entry for entry in _live(job) if entry["kind"] == "sample"]


def lost_peers(job: Path) -> list[str]:
    """The peers whose loss the live page of a job learned of."""
    return [entry["detail"]["peer"] for entry in _live(job) if entry.get("event") in {"lost", "failed"}]


def _live(job: Path) -> list[dict[str, Any]]:
    lines = (job / "live.jsonl").read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]  # the last one may be half written


def processes_of(directory: Path) -> list[int]:
    """Processes whose arguments name this directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if str(directory).encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found
