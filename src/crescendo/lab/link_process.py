"""The process of a link, as its network sees it: requests in, one line for each out.

Both kinds of links use it: one that carries packets, and one that passes on bytes. Knows no request.
"""

import threading
from collections.abc import Callable
from typing import Any

import msgspec

from crescendo.lab.switch_program import OK
from crescendo.model.errors import LostError
from crescendo.model.units import format_unit
from crescendo.processes.child import ChildProcess, close_pipes, first_line, wait_or_kill

StartProgram = Callable[[list[str]], ChildProcess]
"""Starts a program in a network of the lab, with pipes."""

_READY_S, _ANSWER_S, _END_S = 30.0, 10.0, 5.0


class LinkProcess:
    """A program that answers requests until its input is closed."""

    def __init__(self, start: StartProgram, argv: list[str], name: str) -> None:
        self._name = name
        self._asking = threading.Lock()
        self._process = start(argv)

    def why_not_ready(self) -> str | None:
        """None when it is; otherwise the process is ended."""
        answer = first_line(self._process, _READY_S)
        if answer == OK:
            return None
        self.close()
        return answer or "it did not answer"

    def ask(self, request: Any) -> str:
        assert self._process.stdin is not None  # noqa: S101 - it was started with a pipe
        with self._asking:
            try:
                self._process.stdin.write(msgspec.json.encode(request, enc_hook=format_unit) + b"\n")
                self._process.stdin.flush()
            except OSError as err:
                raise LostError(f"lab: {self._name} has ended: {err.strerror}") from err
            answer = first_line(self._process, _ANSWER_S)
        if not answer:
            raise LostError(f"lab: {self._name} does not answer")
        return answer

    def order(self, request: Any) -> None:
        """LostError unless it does so."""
        answer = self.ask(request)
        if answer != OK:
            raise LostError(f"lab: {self._name} refuses: {answer}")

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether its process has ended, although nobody closed it."""
        return self._process.poll() is not None

    def close(self) -> None:
        """End the process. Safe to call twice."""
        close_pipes(self._process)
        wait_or_kill(self._process, _END_S)
