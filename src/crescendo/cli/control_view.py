"""How does the terminal show the processes of a lab, and what they answer?

As a table that fits the terminal, as lines where there is none, or as JSON. Asks nothing.
"""

import time
from collections.abc import Callable
from typing import Any

import msgspec
from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table

from crescendo.control.notes import Statistics
from crescendo.model.units import format_ns
from crescendo.run.lab_requests import ProcessAnswer
from crescendo.run.lab_view import LabProcess, LabView

_HALF_SECOND_S = 0.5


def watch_lab(view: LabView) -> int:
    """Until Ctrl-C."""
    console = Console(highlight=False)
    try:
        if not console.is_terminal:
            while True:
                print(*(_line(one) for one in view.refresh()), sep="\n", flush=True)
                time.sleep(_HALF_SECOND_S)
        with Live(console=console, auto_refresh=False, transient=True) as live:
            while True:
                live.update(_table(view.refresh(), console.width), refresh=True)
    except KeyboardInterrupt:
        return 0


def print_processes(view: LabView, as_json: bool) -> None:
    processes = view.refresh()
    if as_json:
        print(msgspec.json.encode([_document(one) for one in processes]).decode(), flush=True)
        return
    console = Console(highlight=False)
    console.print(_table(processes, console.width))


def print_answer(answer: ProcessAnswer, as_json: bool) -> None:
    name, command, payload = answer.process.identity.id, answer.command.name, answer.payload
    if as_json:
        document = {"peer": name, "run": answer.process.scope, "answer": command, "took_ns": answer.took_ns}
        print(msgspec.json.encode({**document, "payload": payload}).decode(), flush=True)
        return
    if command == "LOG":
        print(*payload["lines"], sep="\n", flush=True)
        return
    shown = ", ".join(f"{key} {value}" for key, value in payload.items() if value not in ({}, [], None, ""))
    print(f"{name}: {command} after {answer.took_ns / 1e6:.1f} ms" + (f": {shown}" if shown else ""), flush=True)


def _document(one: LabProcess) -> dict[str, Any]:
    statistics = one.statistics
    return {
        "run": one.scope,
        "id": one.identity.id,
        "role": one.identity.role,
        "host": one.identity.host,
        "pid": one.identity.pid,
        "state": one.state,
        "standing": one.is_standing,
        "busy_with": one.run if one.is_standing else "",
        "round_trip_ns": one.round_trip_ns,
        "clock_offset_ns": one.clock_offset_ns,
        "lease_left_ns": one.lease_left_ns(time.monotonic_ns()),
        "statistics": None if statistics is None else msgspec.to_builtins(statistics),
    }


def _line(one: LabProcess) -> str:
    statistics = one.statistics
    load = "" if statistics is None else f", {statistics.rate:,.0f} msg/s, {statistics.messages:,} messages"
    return f"{one.scope}/{one.identity.id} on {one.identity.host}: {one.state}{load}"


def _table(processes: list[LabProcess], width: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=f"{len(processes)} processes", title_justify="left")
    columns = [name for name in _CELLS if width >= _WIDE or name not in _ONLY_WIDE]
    for name in columns:
        table.add_column(name, justify="left" if name in _TEXTS else "right", no_wrap=True)
    for one in processes:
        table.add_row(*(_CELLS[name](one) for name in columns))
    return table


def _state(one: LabProcess) -> str:
    return f"{one.state} {one.run[:_RUN_CHARS]}".strip() if one.is_standing else one.state


def _reported(show: Callable[[Statistics], str]) -> Callable[[LabProcess], str]:
    return lambda one: "" if one.statistics is None else show(one.statistics)


def _p99(report: Statistics) -> str:
    return "" if report.p99_ns is None else format_ns(report.p99_ns)


_RUN_CHARS = 8  # of a run's name; RUN/ID takes a beginning too
_WIDE = 110  # columns of a terminal
_TEXTS = ("run", "peer", "role", "host", "state")
_ONLY_WIDE = ("role", "host", "lease", "ping", "clock", "CPU")
_CELLS: dict[str, Callable[[LabProcess], str]] = {
    "run": lambda one: "standing" if one.is_standing else one.scope[:_RUN_CHARS],
    "peer": lambda one: one.identity.id,
    "role": lambda one: one.identity.role,
    "host": lambda one: one.identity.host,
    "state": _state,
    "lease": lambda one: f"{one.lease_left_ns(time.monotonic_ns()) / 1e9:.0f} s",
    "ping": lambda one: f"{one.round_trip_ns / 1e6:.1f} ms",
    "clock": lambda one: f"{one.clock_offset_ns / 1e6:+.1f} ms",
    "msg/s": _reported(lambda report: f"{report.rate:,.0f}"),
    "messages": _reported(lambda report: f"{report.messages:,}"),
    "p99": _reported(_p99),
    "CPU": _reported(lambda report: f"{report.cpu * 100:.0f} %"),
}
