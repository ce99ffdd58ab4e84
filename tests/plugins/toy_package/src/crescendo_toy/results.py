"""An export format and a verb. `crescendo --help` imports verbs, so what costs time is imported when it is needed."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from crescendo.model.errors import ConfigError

HEADER = "second,messages"
_NS_PER_S = 10**9


def export_rates(run_dir: Path, out: Path) -> Iterator[Path]:
    """Write OUT/rates.csv: received messages per second, as the import format of this package reads them."""
    import pyarrow.parquet as pq

    from crescendo.record.reader import open_recording
    from crescendo.record.schema import RECEIVED

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out}: exists and is not empty; choose another --out")
    rates: Counter[int] = Counter()
    for file in open_recording(run_dir).files(RECEIVED):
        times_ns = pq.read_table(file, columns=["received_ns"]).column(0).to_pylist()
        rates.update(t_ns // _NS_PER_S for t_ns in times_ns)
    out.mkdir(parents=True, exist_ok=True)
    path = out / "rates.csv"
    path.write_text("\n".join([HEADER, *(f"{second},{rates[second]}" for second in sorted(rates))]) + "\n")
    yield path


def count(run: Annotated[Path, typer.Argument(help="An analysed recording.")]) -> None:
    """Print how many messages of a run arrived."""
    from crescendo.record.summary import read_summary

    summary = read_summary(run)
    print(f"{summary.total.delivered} of {summary.total.sent} messages arrived: {summary.verdict.outcome}")
