"""How is a search over a factor shown? One line per level, and the page."""

from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from crescendo.campaigns.capacity_search import experiments_of, levels_of, run_capacity
from crescendo.cli.run_view import TerminalObserver, ask_before_purging, with_metrics
from crescendo.cli.search import search_line
from crescendo.model.experiment import Experiment
from crescendo.record.search_result import SearchResult
from crescendo.run import session
from crescendo.run.analysis import Analyst
from crescendo.run.control_access import ControlAccess
from crescendo.run.interruption import Interruption


def capacity_and_show(
    document: dict[str, Any],
    sweep: str,
    command: list[str],
    out: Path,
    *,
    control: ControlAccess | None = None,
    master: str | None = None,
    durable: bool = True,
    metrics: int | None = None,
    as_json: bool = False,
) -> int:
    """Search at each level; 0 if every level has an answer, otherwise 3."""
    ask_before_purging(experiments_of(document, *levels_of(sweep))[0])
    console = Console(stderr=as_json, highlight=False, markup=False, soft_wrap=True)
    with (
        Interruption() as interruption,
        Analyst(master) as analyst,
        TerminalObserver(console) as shown,
        with_metrics(shown, str(document.get("name", "")), metrics) as observer,
    ):

        def search_at(experiment: Experiment, directory: Path) -> tuple[Path, SearchResult]:
            found = session.search(
                experiment, out=directory, control=control, durable=durable, observer=observer, analyst=analyst,
                interruption=interruption, command=command,
            )  # fmt: skip
            return found.path, found.result

        page, result = run_capacity(document, sweep, out, lambda *given: _shown(console, search_at(*given)))
    if as_json:
        print(msgspec.json.encode(result).decode(), flush=True)
    else:
        for level in result.levels:
            rate = "nothing confirmed" if level.rate is None else f"{level.rate:,.0f} msg/s"
            print(f"{result.factor} {level.level}: {rate}" + ("" if level.complete else f" ({level.reason})"))
        print(f"report  {page}", flush=True)
    answered = len(result.levels) == len(levels_of(sweep)[1]) and all(level.complete for level in result.levels)
    return 0 if answered else 3


def _shown(console: Console, found: tuple[Path, SearchResult]) -> tuple[Path, SearchResult]:
    console.print(search_line(found[1]))
    return found
