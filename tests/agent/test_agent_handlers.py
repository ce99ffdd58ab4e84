"""A handler is contained whatever it does: it hangs, forks, floods, fails, or its guardian is killed."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from crescendo.agent import handler_guardian
from crescendo.agent.handler_process import (
    HandlerBounds,
    HandlerEvent,
    HandlerFailure,
    HandlerMessage,
    HandlerProcess,
    HandlerResult,
    HandlerStart,
    end_now,
)

MARK = "CRESCENDO_TEST_MARK"
TIMEOUT_S = 60.0
BOUNDS = HandlerBounds(time_s=50.0, output=65_536, memory=512 * 2**20, files=2**20, processes=20, events=5)


class Bench:
    """Starts handlers that carry a mark, by which everything that they leave is found."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.mark = uuid.uuid4().hex

    def start(self, program: str, bounds: HandlerBounds = BOUNDS, parameters: str = "{}") -> HandlerProcess:
        file = self.directory / f"handler-{uuid.uuid4().hex[:6]}"
        file.write_text(program)
        file.chmod(0o755)
        env = {"PATH": os.environ["PATH"], MARK: self.mark}
        return HandlerProcess([str(file)], cwd=self.directory, env=env, parameters=parameters, bounds=bounds)

    def run(self, program: str, bounds: HandlerBounds = BOUNDS, parameters: str = "{}") -> list[HandlerMessage]:
        return messages_of(self.start(program, bounds, parameters))

    def left(self) -> list[int]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process.pid)
        return found


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def until(wanted: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not wanted():
        assert time.monotonic() < deadline_s, "not in time"
        time.sleep(0.01)


def messages_of(process: HandlerProcess) -> list[HandlerMessage]:
    found: list[HandlerMessage] = []

    def is_over() -> bool:
        found.extend(process.messages())
        return process.ended

    until(is_over)
    return found


def result_of(messages: list[HandlerMessage]) -> HandlerResult:
    (result,) = [message for message in messages if isinstance(message, HandlerResult)]
    return result


def test_parameters_go_in_and_output_events_and_code_come_out(bench: Bench) -> None:
    program = f"""#!{sys.executable}
import json, os, sys
given = json.load(sys.stdin)
pipe = os.fdopen(3, "w")
print(json.dumps({{"event": "cut", "link": given["link"]}}), file=pipe, flush=True)
print("not json", file=pipe, flush=True)
print("x" * 5000, file=pipe, flush=True)
print(json.dumps({{"note": "half way"}}), file=pipe, flush=True)
print("done", flush=True)
print("bad", file=sys.stderr, flush=True)
sys.exit(given["code"])
"""
    messages = bench.run(program, parameters=json.dumps({"link": "a-b", "code": 3}))
    assert isinstance(messages[0], HandlerStart)
    assert [message.content for message in messages if isinstance(message, HandlerEvent)] == [
        {"event": "cut", "link": "a-b"},
        {"note": "half way"},
    ]
    result = result_of(messages)
    assert (result.code, result.reason, result.dropped) == (3, "", 2)
    assert result.output.splitlines() == ["done", "bad"]
    assert not result.is_good


def test_a_handler_gets_a_session_and_none_of_our_variables_or_files(bench: Bench) -> None:
    os.environ["CRESCENDO_SECRET_OF_TEST"] = "x"
    try:
        result = result_of(
            bench.run("#!/bin/sh\nenv\nls /proc/self/fd | tr '\\n' ' '\nps -o sid= -p $$\necho $$\nulimit -v\n")
        )
    finally:
        del os.environ["CRESCENDO_SECRET_OF_TEST"]
    lines = result.output.split("\n")
    assert "CRESCENDO_SECRET_OF_TEST" not in result.output
    assert lines[-2] == str(BOUNDS.memory // 1024)
    assert lines[-4].split()[-1].strip() == lines[-3], "the leader of its own session"


def test_a_handler_that_hangs_is_ended_in_time_with_all_that_it_started(bench: Bench) -> None:
    program = "#!/bin/sh\ntrap '' TERM INT HUP\n(setsid sleep 1000 &)\nsleep 1000 & \nsleep 1000\n"
    begun_s = time.monotonic()
    result = result_of(bench.run(program, HandlerBounds(0.7, 65_536, 2**29, 2**20, 20, 5)))
    assert result.reason == "time"
    assert result.left >= 2
    assert time.monotonic() - begun_s < TIMEOUT_S
    assert bench.left() == []


def test_daemons_that_outlive_their_handler_are_ended_and_counted(bench: Bench) -> None:
    program = f"""#!{sys.executable}
import os, time
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(1000)
        os._exit(0)
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
"""
    result = result_of(bench.run(program))
    assert (result.code, result.reason, result.left) == (0, "", 3)
    assert bench.left() == []


def test_children_are_found_without_the_list_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["sleep", "1000"]) as child:
        listed = handler_guardian._children(os.getpid())
        monkeypatch.setattr(handler_guardian.os.path, "exists", lambda path: False)
        found = handler_guardian._children(os.getpid())
        child.kill()
    assert child.pid in listed
    assert sorted(found) == sorted(listed)


def test_a_fork_bomb_is_ended(bench: Bench) -> None:
    program = f"""#!{sys.executable}
import os, time
while True:
    try:
        os.fork()
    except OSError:
        pass
    time.sleep(0.15)
"""
    result = result_of(bench.run(program))
    assert result.reason == "processes"
    assert bench.left() == []


def test_a_hundred_megabytes_of_output_are_cut_at_the_limit(bench: Bench) -> None:
    result = result_of(bench.run("#!/bin/sh\nhead -c 100000000 /dev/zero | tr '\\0' x\n"))
    assert result.reason == "output"
    assert result.output == "x" * BOUNDS.output
    assert bench.left() == []


def test_memory_and_files_are_limited(bench: Bench) -> None:
    result = result_of(bench.run(f"#!{sys.executable}\nx = bytearray(600 * 2**20)\n"))
    assert result.code == 1
    assert "MemoryError" in result.output
    result = result_of(bench.run("#!/bin/sh\nexec head -c 4000000 /dev/zero > large\n"))
    assert result.code == -signal.SIGXFSZ
    assert (bench.directory / "large").stat().st_size == BOUNDS.files


def test_events_beyond_the_limit_are_dropped_and_counted(bench: Bench) -> None:
    messages = bench.run('#!/bin/sh\nfor n in 1 2 3 4 5 6 7 8; do echo "{\\"n\\": $n}" >&3; done\n')
    assert [message.content["n"] for message in messages if isinstance(message, HandlerEvent)] == [1, 2, 3, 4, 5]
    assert result_of(messages).dropped == 3


def test_a_file_that_is_not_a_program_fails_with_its_reason(bench: Bench) -> None:
    (message,) = bench.run("neither a script nor a program")
    assert message == HandlerFailure("it cannot be executed: Exec format error")


def test_stopping_ends_everything_at_once(bench: Bench) -> None:
    process = bench.start("#!/bin/sh\n(setsid sleep 1000 &)\nsleep 1000\n")
    until(lambda: any(isinstance(message, HandlerStart) for message in process.messages()))
    (result,) = end_now([process])
    assert (result.reason, result.is_good) == ("stopped", False)
    assert bench.left() == []


def test_a_killed_guardian_takes_its_handler_along(bench: Bench) -> None:
    process = bench.start("#!/bin/sh\nexec sleep 1000\n")
    until(lambda: any(isinstance(message, HandlerStart) for message in process.messages()))
    os.kill(process.guardian_pid, signal.SIGKILL)
    assert result_of(messages_of(process)).reason == "guardian"
    until(lambda: not bench.left())


def test_nothing_is_left_when_the_process_that_started_handlers_is_killed(bench: Bench) -> None:
    """The parent is another process, so that it can be killed; its guardian ends what the handler forked."""
    program = bench.directory / "handler"
    program.write_text("#!/bin/sh\ntrap '' TERM HUP INT\n(setsid sleep 1000 &)\nsleep 1000\n")
    program.chmod(0o755)
    code = f"""
import time
from pathlib import Path
from crescendo.agent.handler_process import HandlerBounds, HandlerProcess
bounds = HandlerBounds(50.0, 65536, 2**29, 2**20, 20, 5)
process = HandlerProcess([{str(program)!r}], cwd=Path({str(bench.directory)!r}),
    env={{"PATH": "/usr/bin:/bin", {MARK!r}: {bench.mark!r}}}, parameters="", bounds=bounds)
while not process.messages():
    time.sleep(0.01)
print("started", flush=True)
time.sleep(1000)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"started\n"
        until(lambda: len(bench.left()) >= 3)
        parent.kill()
    until(lambda: not bench.left())
