"""Does the public interface run, analyse, read and compare, and does a mistake become a ConfigError?"""

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

import crescendo
from api_runs import SENT, SHORT, ObservedRun
from crescendo.control.conductor.state import RunState


def test_a_run_has_a_verdict_a_report_and_a_recording(observed_run: ObservedRun) -> None:
    result = observed_run.result
    assert result.passed, result.verdict
    assert result.state is crescendo.State.SEALED
    assert result.summary is not None
    assert result.verdict == result.summary.verdict
    assert {check.metric for check in result.summary.verdict.checks} >= {"lost", "rate", "response_p99"}
    assert result.report == result.run_dir / "report.html"
    assert result.report.exists()
    assert result.recording.summary == result.summary
    assert result.recording.manifest.command == ["crescendo.run", "gate"]


def test_an_observer_sees_steps_events_and_statistics(observed_run: ObservedRun) -> None:
    seen = observed_run.seen
    assert {"starting the control broker", "starting loopback", "judging", "writing the report"} <= set(seen.steps)
    assert "start" in seen.events
    assert seen.messages == sorted(seen.messages)
    assert seen.messages[-1] == SENT
    (recorded,) = seen.recorded
    assert (recorded.run_dir, recorded.summary) == (observed_run.result.run_dir, None)
    assert not recorded.passed


def test_the_running_spark_session_is_used_and_left_alone(observed_run: ObservedRun, spark: SparkSession) -> None:
    assert "starting Spark" not in observed_run.seen.steps[observed_run.seen.steps.index("checking the recording") :]
    assert spark.range(3).count() == 3


def test_an_observer_does_nothing_by_default(observed_run: ObservedRun) -> None:
    observer = crescendo.RunObserver()
    anything: Any = None
    names = [name for name in vars(crescendo.RunObserver) if name == "progress" or name.startswith("on_")]
    assert len(names) >= 7
    assert [getattr(observer, name)(anything) for name in names] == [None] * len(names)
    assert observer.interrupted() is False


def test_an_analysis_can_be_repeated_and_gives_the_same_summary(observed_run: ObservedRun) -> None:
    result = observed_run.result
    assert "jitter" not in result.recording.tables
    assert crescendo.analyze(result, full=True) == result.summary
    assert "jitter" in result.recording.tables
    assert result.report is not None
    result.report.unlink()
    assert crescendo.report(result).stat().st_size > 100_000


def test_many_recordings_are_analysed_into_a_lake_and_again_only_if_they_changed(
    observed_run: ObservedRun, tmp_path: Path
) -> None:
    run_dir, steps = observed_run.result.run_dir, []
    first = crescendo.analyze_all([run_dir, tmp_path / "none"], lake=tmp_path / "lake", progress=steps.append)
    assert first.lake == tmp_path / "lake"
    analysed, aside = first.runs
    assert (analysed.summary, aside.summary) == (observed_run.result.summary, None)
    assert "not a recording" in aside.fault
    assert steps
    (again,) = crescendo.analyze_all([run_dir], lake=tmp_path / "lake").runs
    assert not again.computed
    assert list((tmp_path / "lake" / "latency").rglob("*.parquet"))


def test_a_recording_is_exported_and_files_of_another_tool_are_imported(
    observed_run: ObservedRun, tmp_path: Path
) -> None:
    (written,) = crescendo.export("openmetrics", observed_run.result, tmp_path / "openmetrics")
    assert written.read_text().endswith("# EOF\n")
    with pytest.raises(crescendo.ConfigError, match="tarot"):
        crescendo.export("tarot", observed_run.result, tmp_path / "cards")
    sent_ms = 1_700_000_000_000
    lines = [f"{number},{sent_ms + number},{sent_ms + number + 2}\n" for number in (0, 1, 3)]
    (tmp_path / "consumer.log").write_text("".join(lines))
    account = crescendo.import_recording("amqperf", [tmp_path / "consumer.log"], tmp_path / "imported")
    assert account.messages == {"sent": 4, "received": 3}  # number 2 was sent, because 3 arrived
    assert crescendo.open_recording(tmp_path / "imported").messages().read_all().num_rows == 3


def test_tables_and_messages_are_arrow_data(observed_run: ObservedRun) -> None:
    recording = crescendo.open_recording(observed_run.result)
    latency = recording.table("latency")
    assert isinstance(latency, pa.Table)
    assert {"phase", "kind", "p99"} <= set(latency.column_names)
    batches = list(recording.messages())
    assert sum(batch.num_rows for batch in batches) == SENT
    assert "received_ns" in batches[0].schema.names
    few = recording.messages("sent", columns=["seq"], where=pc.field("seq") < 5).read_all()
    assert few.column_names == ["seq"]
    assert sorted(few["seq"].to_pylist()) == [0, 1, 2, 3, 4]
    assert recording.messages("readings").read_all().num_rows == 0  # the run has no inspector
    assert recording.damaged == {}


def test_rows_are_spark_frames_of_the_given_session(observed_run: ObservedRun, spark: SparkSession) -> None:
    recording = observed_run.result.recording
    assert recording.spark(spark, "received").where("seq < 10").count() == 10
    assert recording.spark(spark, "ledger").count() == recording.table("ledger").num_rows


def test_a_run_compared_with_itself_is_no_different(observed_run: ObservedRun) -> None:
    comparison = crescendo.compare(observed_run.result, observed_run.result.recording, threshold=0.1)
    changes = {metric.metric: metric.outcome for metric in comparison.metrics}
    assert changes["lost"] is crescendo.Change.SAME
    assert comparison.threshold == 0.1


def test_damaged_parts_are_left_out_and_named(observed_run: ObservedRun, tmp_path: Path) -> None:
    source = observed_run.result.run_dir
    (part,) = [part for part in observed_run.result.recording.manifest.files if part.table == "received"]
    copied = tmp_path / "copy"
    (copied / part.path).parent.mkdir(parents=True)
    (copied / "manifest.json").write_bytes((source / "manifest.json").read_bytes())
    (copied / part.path).write_bytes((source / part.path).read_bytes()[:-1])
    recording = crescendo.open_recording(copied)
    assert f"not {part.octets}" in recording.damaged[part.path]
    assert recording.messages().read_all().num_rows == 0


class StopsAfter(crescendo.RunObserver):
    """Asks the run to stop once something was sent."""

    def __init__(self) -> None:
        self.sent = 0

    def on_statistics(self, state: RunState) -> None:
        self.sent = sum(peer.statistics.messages for peer in state.of("sender") if peer.statistics)

    def interrupted(self) -> bool:
        return self.sent > 0


def test_an_interrupted_run_keeps_its_recording_and_touches_no_signal(tmp_path: Path) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    during: list[dict[signal.Signals, Any]] = []

    class Observer(StopsAfter):
        def on_recorded(self, result: crescendo.RunResult) -> None:
            during.append({number: signal.getsignal(number) for number in before})

    long = msgspec.structs.replace(SHORT, phases=msgspec.structs.replace(SHORT.phases, measure=_minute()))
    result = crescendo.run(long, out=tmp_path, observer=Observer())
    assert result.state is crescendo.State.INTERRUPTED
    assert (result.summary, result.verdict, result.report, result.passed) == (None, None, None, False)
    assert result.recording.messages("sent").read_all().num_rows > 0
    assert during == [before]


def _minute() -> Any:
    document = {"name": "long", "workload": {"senders": 1, "receivers": 1}, "phases": {"measure": "60s"}}
    return crescendo.experiment_from(document).phases.measure


def test_a_run_that_is_stopped_before_its_first_message_leaves_nothing(tmp_path: Path) -> None:
    class Impatient(crescendo.RunObserver):
        def interrupted(self) -> bool:
            return True

    with pytest.raises(KeyboardInterrupt):
        crescendo.run(SHORT, out=tmp_path, observer=Impatient(), analyze=False)
    assert list(tmp_path.iterdir()) == []


def test_signals_are_handled_only_while_an_interruption_is_entered() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with crescendo.Interruption() as interruption:
        signal.raise_signal(signal.SIGTERM)
        assert interruption.asked
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        interruption.raise_at_once()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_run_in_another_thread_is_possible(tmp_path: Path) -> None:
    results: list[crescendo.RunResult] = []
    thread = threading.Thread(target=lambda: results.append(crescendo.run(SHORT, out=tmp_path, analyze=False)))
    thread.start()
    thread.join(60)
    assert [result.state for result in results] == [crescendo.State.SEALED]
    assert results[0].report is None


def _search() -> crescendo.Experiment:
    document = {"workload": {"senders": 1, "receivers": 1, "rate": 100}, "phases": {"measure": "10s"}}
    return crescendo.experiment_from({**document, "name": "much", "search": {"from": 1000, "to": 2000}})


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda at: crescendo.load_experiment(at / "none.yml"), "none.yml: no such file"),
        (lambda at: crescendo.load_experiment(str(at / "none.yml")), "none.yml: no such file"),
        (lambda at: crescendo.experiment_from({"name": "x", "workload": {"senderz": 1}}), "senderz"),
        (lambda at: crescendo.run(at / "none.yml"), "none.yml: no such file"),
        (lambda at: crescendo.run(_search(), out=at), "call crescendo.search"),
        (lambda at: crescendo.search(SHORT, out=at), "this experiment has no search"),
        (lambda at: crescendo.run(SHORT, out=at, master="nonsense"), "not a Spark master"),
        (lambda at: crescendo.analyze(at, master="nonsense"), "not a Spark master"),
        (crescendo.analyze, "not a recording"),
        (crescendo.open_recording, "not a recording"),
        (crescendo.report, "not a recording"),
        (lambda at: crescendo.compare(at, at), "neither a recording"),
        (lambda at: crescendo.compare(at, at, threshold=-1), "must be a share of 0 or more"),
    ],
)
def test_a_mistake_is_a_config_error(call: Callable[[Path], Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(crescendo.ConfigError, match=sentence):
        call(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_mistake_about_a_table_names_those_that_exist(observed_run: ObservedRun, spark: SparkSession) -> None:
    recording = observed_run.result.recording
    with pytest.raises(
        crescendo.ConfigError, match=r"no table is called 'latencies'; did you mean 'latency'\? known: "
    ):
        recording.table("latencies")
    with pytest.raises(crescendo.ConfigError, match=r"no table 'arrived'; did you mean 'received'\? known: sent, "):
        recording.messages("arrived")
    with pytest.raises(crescendo.ConfigError, match=r"received has no column 'sequence'; known: .*seq"):
        recording.messages(columns=["sequence"])
    with pytest.raises(crescendo.ConfigError, match=r"where: does not fit the columns of received"):
        recording.messages(where=pc.field("nonsense") > 1)
    with pytest.raises(crescendo.ConfigError, match=r"no table is called 'arrived'"):
        recording.spark(spark, "arrived")
