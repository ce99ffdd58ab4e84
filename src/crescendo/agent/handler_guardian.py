"""Which process keeps one handler within its limits, and ends everything that it started?

This one, as `python -I -S handler_guardian.py`. It reads what to run as one line of JSON from standard input, and says
what happens as lines of JSON on standard output. When standard input ends, the agent is gone or wants no more: it kills
the handler with all descendants and exits. Orphans become its children, so none escapes by forking; and the kernel
kills the handler if this process is killed. With `owed_after`, what it is given is a cure: it runs it only if standard
input ends without a word, which means that the agent was killed. Imports nothing of Crescendo, and starts no shell.
"""

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import sys
import time

EVENTS_FD = 3
MAX_EVENT_BYTES = 4096
MAX_SPEC_BYTES = 256 * 1024
STOPPED, TOO_LONG, TOO_MUCH_OUTPUT, TOO_MANY_PROCESSES = "stopped", "time", "output", "processes"

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_NOT_STARTED = 127
_COUNT_S = 0.1
_FLUSH_S = 5.0
_EARLIER_S = 5.0
_READ_BYTES = 65_536
_FROZEN_SCANS = 50
_RESET_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the end of standard input is what ends it
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    line, _, more = _first_line().partition(b"\n")
    if line:
        spec = json.loads(line)
        if "owed_after" not in spec or (not more and _is_abandoned(spec["owed_after"])):
            Guard(spec).run()


def _is_abandoned(earlier: int) -> bool:
    """Wait until the agent settles the cure or is gone, and then for the guardian of what the cure undoes."""
    if os.read(0, 1):
        return False
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 1)  # nobody listens any more
    deadline_s = time.monotonic() + _EARLIER_S
    while not _is_zombie(earlier) and time.monotonic() < deadline_s:
        time.sleep(_COUNT_S / 10)
    return True


class Guard:
    """One handler and all its descendants."""

    def __init__(self, spec: dict) -> None:  # type: ignore[type-arg]
        self.spec = spec
        self.limits = spec["limits"]
        self.pending = bytearray()  # lines that the agent has not read yet
        self.output = bytearray()
        self.event_line = bytearray()
        self.skipping = False  # the rest of a line that is too long
        self.events = self.dropped = 0
        self.reason = ""

    def run(self) -> None:
        begun_s = time.monotonic()
        os.set_blocking(1, False)
        self.child, self.out, self.event_pipe, errno = start(self.spec)
        if errno:
            os.waitpid(self.child, 0)
            self.report({"failed": errno})
        else:
            self.report({"started": self.child, "t_ns": time.monotonic_ns()})
            self.watch(begun_s + self.limits["time_s"])
            code, left = end_descendants(self.child)
            self.drain()
            self.report({
                "ended": code, "t_ns": time.monotonic_ns(), "reason": self.reason, "left": left,
                "output": self.output[: self.limits["output"]].decode(errors="replace"),
                "events": self.events, "dropped": self.dropped,
            })  # fmt: skip
        self.flush()

    def watch(self, deadline_s: float) -> None:
        """Until the handler has exited, or must be ended."""
        exited = os.pidfd_open(self.child)
        poll = select.poll()
        for fd in (*(() if "owed_after" in self.spec else (0,)), self.out, self.event_pipe, exited):
            poll.register(fd, select.POLLIN)
        count_s = 0.0
        while not self.reason:
            now_s = time.monotonic()
            if now_s >= deadline_s:
                self.reason = TOO_LONG
                return
            if now_s >= count_s:
                count_s = now_s + _COUNT_S
                if len(descendants(self.limits["processes"])) > self.limits["processes"]:
                    self.reason = TOO_MANY_PROCESSES
                    return
            poll.register(1, select.POLLOUT if self.pending else 0)
            ready = {fd for fd, _ in poll.poll(int(1000 * min(deadline_s - now_s, _COUNT_S)) + 1)}
            if 0 in ready and not os.read(0, _READ_BYTES):
                self.reason = STOPPED
            if 1 in ready:
                self.send()
            if self.out in ready and not self.take_output():
                poll.unregister(self.out)
            if self.event_pipe in ready and not self.take_events():
                poll.unregister(self.event_pipe)
            if exited in ready:
                return

    def take_output(self) -> bool:
        content = _read(self.out)
        room = self.limits["output"] - len(self.output)
        self.output += content[:room]
        if len(content) > room:
            self.reason = self.reason or TOO_MUCH_OUTPUT
        return bool(content)

    def take_events(self) -> bool:
        """Whole lines; what is too long, too much or not a JSON object is dropped and counted."""
        content = _read(self.event_pipe)
        *lines, rest = (bytes(self.event_line) + content).split(b"\n")
        for line in lines:
            self.take_event(line)
        self.event_line[:] = rest
        if len(self.event_line) > MAX_EVENT_BYTES:
            self.event_line.clear()
            self.dropped += not self.skipping
            self.skipping = True
        return bool(content)

    def take_event(self, line: bytes) -> None:
        if self.skipping:
            self.skipping = False
            return
        event = None
        if len(line) <= MAX_EVENT_BYTES:
            with contextlib.suppress(ValueError, RecursionError):
                event = json.loads(line)
        if not isinstance(event, dict) or self.events >= self.limits["events"]:
            self.dropped += bool(line.strip())
            return
        self.events += 1
        self.report({"event": event, "t_ns": time.monotonic_ns()})

    def drain(self) -> None:
        """What was written before the end: nobody holds the other ends any more."""
        while self.take_output() and len(self.output) < self.limits["output"]:
            pass
        while self.take_events():
            pass

    def report(self, message: dict) -> None:  # type: ignore[type-arg]
        self.pending += json.dumps(message).encode() + b"\n"

    def send(self) -> None:
        try:
            del self.pending[: os.write(1, self.pending[:_READ_BYTES])]
        except BlockingIOError:
            return
        except OSError:
            self.pending.clear()  # nobody listens any more

    def flush(self) -> None:
        deadline_s = time.monotonic() + _FLUSH_S
        while self.pending and time.monotonic() < deadline_s:
            select.select([], [1], [], _COUNT_S)
            self.send()


def start(spec: dict) -> tuple[int, int, int, int]:  # type: ignore[type-arg]
    """The handler's pid, the pipes of its output and its events, and why it could not be started (an errno, or 0)."""
    given, parameters = os.pipe()
    out, printed = os.pipe()
    events, announced = os.pipe()
    report, failure = os.pipe()
    guardian = os.getpid()
    child = os.fork()
    if child == 0:
        _become(spec, guardian, (given, printed, announced), failure)
    for fd in (given, printed, announced, failure):
        os.close(fd)
    os.set_blocking(parameters, False)
    with contextlib.suppress(OSError):  # a handler need not read them; they fit into the pipe
        os.write(parameters, spec["parameters"].encode())
    os.close(parameters)
    errno = os.read(report, 16)
    os.close(report)
    for fd in (out, events):
        os.set_blocking(fd, False)
    return child, out, events, int(errno or 0)


def _become(spec: dict, guardian: int, pipes: tuple[int, int, int], failure: int) -> None:  # type: ignore[type-arg]
    """The handler: a session of its own, its pipes, its limits, and nothing else of ours."""
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != guardian:
            os._exit(_NOT_STARTED)
        # First out of the way of the numbers that they shall have.
        given, printed, announced, report = (os.dup2(fd, 20 + at) for at, fd in enumerate((*pipes, failure)))
        for fd, number in ((given, 0), (printed, 1), (printed, 2), (announced, EVENTS_FD)):
            os.dup2(fd, number)
        os.set_inheritable(report, False)
        os.closerange(EVENTS_FD + 1, report)
        os.closerange(report + 1, 256)
        for number in _RESET_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        limits = spec["limits"]
        for kind, most in (
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_FSIZE, limits["files"]),
            (resource.RLIMIT_AS, limits["memory"]),
        ):
            hard = resource.getrlimit(kind)[1]
            limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(kind, (limit, limit))
        os.chdir(spec["cwd"])
        os.umask(0o077)
        os.execve(spec["argv"][0], spec["argv"], spec["env"])  # noqa: S606 - the purpose of this program
    except OSError as err:
        os.write(report, str(err.errno).encode())
    finally:
        os._exit(_NOT_STARTED)


def descendants(enough: int = 1 << 30) -> list[int]:
    """Every process below this one; not many more than `enough`."""
    found: list[int] = []
    unseen = [os.getpid()]
    while unseen and len(found) <= enough:
        children = _children(unseen.pop())
        found += children
        unseen += children
    return found


def _children(pid: int) -> list[int]:
    if not os.path.exists("/proc/thread-self/children"):  # a kernel without this list
        return [child for child in _all_processes() if _parent(child) == pid]
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    found: list[int] = []
    for thread in threads:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children") as file:
            found += map(int, file.read().split())
    return found


def _all_processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return -1


def end_descendants(child: int) -> tuple[int, int]:
    """Kill everything below this process: the exit code of the handler, and how many processes it had beside itself.

    Stopped first: a process that forks faster than it is killed would win otherwise. Orphans become our children, so
    nothing is left when the kernel says that there is no child.
    """
    seen: set[int] = set()
    for _ in range(_FROZEN_SCANS):
        new = set(descendants()) - seen
        if not new:
            break
        seen |= new
        for pid in new:
            _signal(pid, signal.SIGSTOP)
    beside = sum(pid != child and not _is_zombie(pid) for pid in seen)
    code = -signal.SIGKILL
    while True:
        for pid in descendants():
            _signal(pid, signal.SIGKILL)
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code, beside
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
        if pid == 0:
            time.sleep(0.002)


def _is_zombie(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] in {"Z", "X"}
    except (OSError, IndexError):
        return True


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, _READ_BYTES)
    except OSError:  # nothing to read at the moment
        return b""


def _first_line() -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(0, _READ_BYTES)
        if not piece or len(line) > MAX_SPEC_BYTES:
            return b""
        line += piece
    return line


if __name__ == "__main__":
    main()
    sys.exit(0)
