"""Commands that serve until they are stopped: they run as children while the rest of their page is tried.

Each must print a line when it serves, and end in order when it is asked to. None outlives its page.
"""

import re
import signal
import subprocess
import sys
import threading
from typing import IO

from crescendo.mlmq.client import Client

FREE_PORT = {"broker": ["--listen", "127.0.0.1:0"], "web": ["--port", "0"]}
"""Verbs that serve, and what lets several of them serve at once."""

ENDING = {"--init", "--add-account"}
"""With these options they do one thing, and end."""

READY_S = 60.0
END_S = 60.0
QUEUES = ("jobs", "jobs-dead")
"""What the program of the guide creates."""


class ServedCommands:
    """The children of one page. Use as a context manager."""

    def __init__(self) -> None:
        self.page = ""
        self._children: list[tuple[list[str], subprocess.Popen[str]]] = []

    def serve(self, page: str, words: list[str]) -> None:
        """Start a command, and wait until it serves, or has ended well."""
        self.page = page
        command = [sys.executable, "-m", "crescendo.cli.main", *words, *FREE_PORT[words[0]]]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._children.append((words, child))
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write("violin gravel ninety harbour\n")
        child.stdin.close()
        line = _first_line(child, child.stdout)
        if ENDING & set(words):
            child.wait(END_S)
        if served := re.match(r"serving mlmq://([\d.]+:\d+),", line):
            with Client("reader", [served[1]]) as client:
                client.register()
                for name in QUEUES:
                    client.create_queue(name)

    def end(self) -> None:
        """End every child that still serves; each must have ended in order."""
        ended = []
        for words, child in self._children:
            if child.poll() is None:
                child.send_signal(signal.SIGINT)
            try:
                ended.append((words, child.wait(END_S)))
            finally:
                child.kill()
                child.wait()
                if child.stdout is not None:
                    child.stdout.close()
        self._children = []
        assert all(code == 0 for _, code in ended), ended

    def __enter__(self) -> "ServedCommands":
        return self

    def __exit__(self, *_error: object) -> None:
        self.end()


def _first_line(child: subprocess.Popen[str], stdout: IO[str]) -> str:
    alarm = threading.Timer(READY_S, child.kill)  # then the read below ends
    alarm.start()
    try:
        line = stdout.readline()
    finally:
        alarm.cancel()
    assert line, f"{child.args} printed nothing"
    return line
