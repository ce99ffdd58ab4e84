"""What happens on a host of a cluster when somebody brings it up, looks at it, or takes it down?

This program runs there, sent over ssh, with the Python of that host: it needs nothing installed and imports the
standard library alone. One request per line (JSON) on standard input, one answer per line on standard output. When its
input ends, because it is done or because ssh was killed, it ends whatever it had not finished, and exits. It writes to
one private directory, and ends only processes that carry the mark of that directory.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import platform
import select
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MARK = "CRESCENDO_CLUSTER_DIRECTORY"
_OWN = "crescendo-cluster"  # a file that says that a directory is ours
_READY = "waits for runs"
_TERM_S, _KILL_S, _POLL_S = 5.0, 5.0, 0.05
_PIECE_BYTES = 1 << 20


class RefusedRequest(Exception):
    """The sentence is the answer."""


class AbandonedRequest(Exception):
    """Nobody is there any more."""


class Host:
    """The private directory of one host, and the peers that run from it."""

    def __init__(self, directory: str) -> None:
        self.directory = os.path.abspath(os.path.expanduser(directory))

    def look(self, python: str = "") -> dict[str, Any]:
        """What is here: Python, what is installed, which peers run."""
        return {
            "directory": self.directory,
            "python": platform.python_version(),
            "machine": platform.machine(),
            "installed": self._installed(),
            "given": self._version_of(python) if python else "",
            "peers": self._peers(),
        }

    def install(
        self,
        name: str,
        files: list[tuple[str, int]],
        requirements: list[str],
        pieces: Callable[[int], Iterator[bytes]],
    ) -> dict[str, Any]:
        """Receive wheels and install them into a directory of their own; pip reads nothing but those."""
        self._own()
        self._remove("installation")
        wheels = self._at("installation", "wheels")
        os.makedirs(wheels)
        for file, octets in files:
            with open(os.path.join(wheels, os.path.basename(file)), "wb") as out:
                for piece in pieces(octets):
                    out.write(piece)
        environment = self._at("installation", "environment")
        self._run([sys.executable, "-m", "venv", "--without-pip", environment])
        python = os.path.join(environment, "bin", "python")
        pip = [python, os.path.join(glob.glob(os.path.join(wheels, "pip-*.whl"))[0], "pip")]
        common = ["install", "--no-index", "--find-links", wheels, "--no-cache-dir", "--quiet"]
        common += ["--disable-pip-version-check", "--no-warn-script-location"]
        self._run([*pip, *common, *requirements])
        # An extra cannot leave anything out, so what it names is installed above, and the package itself without more.
        self._run([*pip, *common, "--no-deps", glob.glob(os.path.join(wheels, "crescendo_lab-*.whl"))[0]])
        self._remove("installation", "wheels")
        self._write("installation.txt", name)
        return {}

    def start(
        self, python: str, peers: list[dict[str, Any]], secrets: dict[str, str], ready_s: float
    ) -> dict[str, Any]:
        """Start the peers that do not run yet, and wait until each waits for runs."""
        self._own()
        for name, text in secrets.items():
            self._write(name, text + "\n")
        interpreter = python or self._at("installation", "environment", "bin", "python")
        started: list[tuple[dict[str, Any], subprocess.Popen[bytes]]] = []
        try:
            for peer in peers:
                started.append(self._start(interpreter, peer))
            for peer, process in started:
                self._await_ready(peer, process, time.monotonic() + ready_s)
        except BaseException:
            self.end([peer["id"] for peer, _ in started])
            raise
        return {"started": [peer["id"] for peer, _ in started]}

    def logs(self, lines: int) -> dict[str, Any]:
        """The last lines of every peer."""
        found = {}
        for path in sorted(glob.glob(self._at("logs", "*.log"))):
            with open(path, "rb") as file:
                file.seek(max(0, os.path.getsize(path) - 200 * lines))
                found[os.path.basename(path)[: -len(".log")]] = (
                    file.read().decode("utf-8", "replace").splitlines()[-lines:]
                )
        return {"logs": found}

    def end(self, peers: list[str]) -> dict[str, Any]:
        """End these peers: first politely, so that they close their files and end their own children."""
        known = self._peers()
        ending = [
            (known[peer]["pid"], known[peer]["birth"]) for peer in peers if peer in known and known[peer]["alive"]
        ]
        for number, timeout_s in ((signal.SIGTERM, _TERM_S), (signal.SIGKILL, _KILL_S)):
            for pid, birth in ending:
                if _birth(pid) == birth:  # the kernel may have given its number to another process
                    _signal(pid, number)
            self._await_gone(ending, timeout_s)
        for peer in peers:
            for kind in (".json", ".settings"):
                with contextlib.suppress(OSError):
                    os.unlink(self._at("peers", peer + kind))
        return {"ended": len(ending)}

    def remove(self) -> dict[str, Any]:
        """End everything that was started from this directory, and delete it."""
        ended = self.end(list(self._peers()))["ended"]
        deadline = time.monotonic() + _KILL_S
        while time.monotonic() < deadline and (left := _marked(self.directory)):
            for pid in left:
                _signal(pid, signal.SIGKILL)
            time.sleep(_POLL_S)
        if os.path.exists(self._at(_OWN)):
            shutil.rmtree(self.directory)
        parent = os.path.dirname(self.directory)
        for _ in range(2):  # the lab's directory, and that of all labs, unless others use them
            with contextlib.suppress(OSError):
                os.rmdir(parent)
            parent = os.path.dirname(parent)
        return {"ended": ended, "left": _marked(self.directory), "directory": os.path.exists(self.directory)}

    def _start(self, interpreter: str, peer: dict[str, Any]) -> tuple[dict[str, Any], subprocess.Popen[bytes]]:
        name = peer["id"]
        os.makedirs(self._at("logs"), exist_ok=True)
        os.makedirs(self._at("data", name), exist_ok=True)
        if peer["settings"]:
            self._write(os.path.join("peers", name + ".settings"), peer["settings"])
        argv = self._argv(interpreter, peer)
        log = self._at("logs", name + ".log")
        with open(log, "wb") as out:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=self.directory,
                env={**os.environ, MARK: self.directory},
                start_new_session=True,
            )
        state = {"pid": process.pid, "birth": _birth(process.pid), "digest": peer["digest"], "version": peer["version"]}
        self._write(os.path.join("peers", name + ".json"), json.dumps(state))
        return peer, process

    def _argv(self, interpreter: str, peer: dict[str, Any]) -> list[str]:
        name, settings = peer["id"], self._at("peers", peer["id"] + ".settings")
        if peer["role"] == "control":
            return [interpreter, "-W", "ignore", "-m", "crescendo.control.embedded_broker", settings]
        argv = [interpreter, "-m", "crescendo.cli.main", "peer", peer["role"], "--id", name]
        argv += ["--control-file", self._at("control.url"), "--token-file", self._at("lab.token")]
        argv += ["--data", self._at("data", name)]
        for label in peer["labels"]:
            argv += ["--label", label]
        if peer["listen"]:
            argv += ["--listen", peer["listen"]]
        return argv + (["--config", settings] if peer["settings"] else [])

    def _await_ready(self, peer: dict[str, Any], process: subprocess.Popen[bytes], deadline: float) -> None:
        log = self._at("logs", peer["id"] + ".log")
        while True:
            with open(log, encoding="utf-8", errors="replace") as file:
                output = file.read()
            if _READY in output:
                return
            if process.poll() is not None:
                raise RefusedRequest(f"{peer['id']} ended: {_last_line(output)}")
            if time.monotonic() > deadline:
                raise RefusedRequest(f"{peer['id']} did not become ready in time: {_last_line(output)}")
            _leave_if_alone(_POLL_S)

    def _peers(self) -> dict[str, dict[str, Any]]:
        found = {}
        for path in sorted(glob.glob(self._at("peers", "*.json"))):
            with contextlib.suppress(OSError, ValueError), open(path, encoding="utf-8") as file:
                state = json.load(file)
                state["alive"] = state["birth"] is not None and _birth(state["pid"]) == state["birth"]
                found[os.path.basename(path)[: -len(".json")]] = state
        return found

    def _installed(self) -> str:
        with contextlib.suppress(OSError), open(self._at("installation.txt"), encoding="utf-8") as file:
            return file.read()
        return ""

    def _version_of(self, python: str) -> str:
        program = "import crescendo; print(crescendo.__version__)"
        try:
            done = subprocess.run([python, "-c", program], capture_output=True, text=True, timeout=60, check=False)
        except (OSError, subprocess.TimeoutExpired) as err:
            raise RefusedRequest(f"{python} cannot be started: {err}") from None
        if done.returncode:
            raise RefusedRequest(f"{python} has no Crescendo: {(done.stderr.strip().splitlines() or [''])[-1]}")
        return done.stdout.strip()

    def _run(self, argv: list[str]) -> None:
        """Run a program to its end, or until nobody waits for it any more."""
        with open(self._at("install.log"), "wb") as out:
            child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
            try:
                while child.poll() is None:
                    _leave_if_alone(_POLL_S)
            finally:
                if child.poll() is None:
                    os.killpg(child.pid, signal.SIGKILL)
                    child.wait()
        if child.returncode:
            with open(self._at("install.log"), encoding="utf-8", errors="replace") as file:
                output = file.read().strip().splitlines()[-3:]
            raise RefusedRequest(f"`{' '.join(argv[:4])} …` failed: {' '.join(output)}")

    def _own(self) -> None:
        if os.path.isdir(self.directory) and os.listdir(self.directory) and not os.path.exists(self._at(_OWN)):
            raise RefusedRequest(f"{self.directory} holds files that are not ours; choose another crescendo_directory")
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        os.chmod(self.directory, 0o700)
        self._write(_OWN, "")

    def _write(self, name: str, text: str) -> None:
        path = self._at(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        partial = path + ".partial"
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(partial, path)

    def _remove(self, *names: str) -> None:
        shutil.rmtree(self._at(*names), ignore_errors=True)
        with contextlib.suppress(OSError):
            os.unlink(self._at("installation.txt"))

    def _at(self, *names: str) -> str:
        return os.path.join(self.directory, *names)

    def _await_gone(self, processes: list[tuple[int, str]], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and any(_birth(pid) == birth for pid, birth in processes):
            _reap()
            time.sleep(_POLL_S)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it printed nothing"


def _birth(pid: int) -> str | None:
    """Boot and start time of a process: the kernel reuses numbers. None if there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
            boot = file.read().strip()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else boot + ":" + fields[19]


def _marked(directory: str) -> list[int]:
    """Processes that were started from this directory, however they got away from their parents."""
    mark = (MARK + "=" + directory).encode()
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
                if mark in file.read().split(b"\0") and _birth(int(name)) is not None:
                    found.append(int(name))
    return found


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)


def _reap() -> None:
    with contextlib.suppress(OSError):
        os.waitpid(-1, os.WNOHANG)


def _leave_if_alone(wait_s: float) -> None:
    """Between request and answer nothing is sent, so input that is readable has ended."""
    if select.select([0], [], [], wait_s)[0]:
        raise AbandonedRequest


def _line() -> bytes:
    """One line from standard input, without a buffer that would hide what follows."""
    line = b""
    while not line.endswith(b"\n"):
        octet = os.read(0, 1)
        if not octet:
            return line
        line += octet
    return line


def _pieces(octets: int) -> Iterator[bytes]:
    while octets:
        piece = os.read(0, min(octets, _PIECE_BYTES))
        if not piece:
            raise AbandonedRequest
        octets -= len(piece)
        yield piece


def main() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the end of the session shows at its input
    host: Host | None = None
    while True:
        line = _line()
        if not line:
            return
        request = json.loads(line.decode("utf-8"))
        action = request.pop("action")
        if host is None:
            host = Host(request.pop("directory"))
        request.pop("directory", None)
        if action == "install":
            request["pieces"] = _pieces
        try:
            answer = getattr(host, action)(**request)
        except RefusedRequest as err:
            answer = {"error": str(err)}
        except AbandonedRequest:
            return
        except OSError as err:
            answer = {"error": f"{err.filename or host.directory}: {err.strerror}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
