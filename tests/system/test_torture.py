"""Torture finds a system that forgets what it acknowledged, and shrinks the cause to one or two faults.

The loopback relay acknowledges what it holds in memory, so a restart forgets it: that is the planted bug. The relay as
a router acknowledges only what a receiver has settled, and must pass.
"""

from pathlib import Path

import duckdb
import pytest

from crescendo.cli.torture import torture as verb
from crescendo.model.errors import ConfigError
from crescendo.model.experiment_file import load_experiment
from crescendo.model.random_faults import random_timeline
from crescendo.model.units import Duration
from crescendo.run.observer import RunObserver
from crescendo.run.random_breakage import TortureResult, durable_experiment, possible_actions, torture

MEASURE = Duration(3 * 10**9)
DO = ("restart", "pause")
WANTED = (["pause", "restart", "pause"], ["pause", "pause", "restart"])
SEED = next(n for n in range(1000) if [fault.do for fault in random_timeline(n, DO, MEASURE)] in WANTED)


def tortured(
    system: str, out: Path, seed: int = SEED, for_ns: int = 1, do: tuple[str, ...] = DO, drain: str = "1500ms"
) -> TortureResult:
    experiment = durable_experiment(system, MEASURE, (f"phases.drain={drain}", "workload.rate=150"))
    return torture(
        experiment, seed=seed, for_ns=for_ns, out=out, actions=do, observer=RunObserver(), report=lambda line: None
    )


def lost_in(run_dir: Path) -> int:
    """Counted by DuckDB, which shares nothing with our own reading."""
    query = """
        with acknowledged as (
            select sender, unnest(generate_series(first_seq, last_seq)) as seq
            from read_parquet('RUN/settled/*.parquet') where outcome = 1)
        select count(*) from (
            select sender, seq from acknowledged
            except select sender, seq from read_parquet('RUN/received/*.parquet'))"""
    return int(duckdb.sql(query.replace("RUN", str(run_dir))).fetchall()[0][0])


@pytest.mark.soak  # a minute: every shorter timeline is a run
@pytest.mark.usefixtures("spark")
def test_a_relay_that_forgets_is_found_and_the_cause_shrunk_to_its_restart(tmp_path: Path) -> None:
    result = tortured("loopback", tmp_path)
    assert result.failing is not None
    assert result.failing.run_dir is not None
    assert len(result.failing.faults) == 3
    assert result.failing.lost == lost_in(result.failing.run_dir) > 0
    assert len(result.shortest) <= 2
    assert "restart" in [fault.do for fault in result.shortest]
    assert result.file is not None
    saved = load_experiment(result.file)
    assert saved.faults == result.shortest
    assert (saved.seed, saved.checks and saved.checks["lost_acknowledged"]) == (SEED, "== 0")


@pytest.mark.usefixtures("spark")  # the analyst uses the session that is running
def test_a_relay_that_acknowledges_only_what_arrived_passes_the_same_faults(tmp_path: Path) -> None:
    result = tortured("relay", tmp_path, drain="20s")  # which ends when everything has arrived
    assert (result.failing, result.judged) == (None, 1)
    assert list(tmp_path.iterdir()) == [], "only what failed is kept"


def test_what_cannot_be_tortured_is_refused() -> None:
    with pytest.raises(ConfigError, match="no protocol with durable queues"):
        durable_experiment("mosquitto")
    with pytest.raises(ConfigError, match="no system is called"):
        durable_experiment("nothing")
    with pytest.raises(ConfigError, match="torture does restart"):
        possible_actions(["explode"])
    with pytest.raises(ConfigError, match="--for"):
        verb("loopback", "10", 1, "1s", None, None, Path("unused"))


@pytest.mark.soak
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("system", ["artemis", "rabbitmq", "qpid-broker-j", "mlmq"])
def test_brokers_keep_what_they_acknowledged_for_five_minutes(system: str, tmp_path: Path) -> None:
    experiment = durable_experiment(system)
    result = torture(
        experiment,
        seed=1,
        for_ns=300 * 10**9,
        out=tmp_path,
        actions=possible_actions(),
        observer=RunObserver(),
        report=print,
    )
    assert result.failing is None, result.shortest
    assert result.judged >= 3
