"""Steps through a network: every number of the small cases is computed by hand."""

from typing import Any

from pyspark.sql import SparkSession

from crescendo.pipeline.source.moments import Timeline
from crescendo.pipeline.traffic.hops import hop_times
from crescendo.record.manifest import Phase
from crescendo.record.schema import HOPS, RECEIVED, spark_ddl

TIMELINE = Timeline(0, (Phase("measure", 0, 10**9),))


def delivery(seq: int, sent_ns: int, received_ns: int, *, intended_ns: int = 1, receiver: int = 0) -> tuple[int, ...]:
    return (receiver, 0, seq, intended_ns, sent_ns, received_ns, seq, 64, 0)


def steps(spark: SparkSession, hops: list[tuple[Any, ...]], received: list[tuple[int, ...]]) -> list[Any]:
    frames = spark.createDataFrame(hops, spark_ddl(HOPS)), spark.createDataFrame(received, spark_ddl(RECEIVED))
    return hop_times(*frames, TIMELINE).collect()


def test_steps_of_a_route_are_the_gaps_between_its_times_and_add_up(spark: SparkSession) -> None:
    hops = [("b", 0, 0, 60, 70), ("a", 0, 0, 15, 20), ("a", 0, 100, 120, 150), ("b", 0, 100, 160, 165)]
    found = steps(spark, hops, [delivery(0, 10, 100), delivery(100, 110, 200)])
    assert {row.route for row in found} == {"a → b"}
    assert [(row.position, row.start, row.end, row.messages, row.mean_ns, row.max_ns) for row in found] == [
        (0, "sender", "a", 2, (5 + 10) / 2, 10),
        (1, "a", "a", 2, (5 + 30) / 2, 30),
        (2, "a", "b", 2, (40 + 10) / 2, 40),
        (3, "b", "b", 2, (10 + 5) / 2, 10),
        (4, "b", "receiver", 2, (30 + 35) / 2, 35),
    ]
    assert sum(row.mean_ns for row in found) == (90 + 90) / 2
    assert {row.p50_ns for row in found} == {None}, "two samples have no percentiles"


def test_routes_are_kept_apart_and_messages_without_a_single_path_are_left_out(spark: SparkSession) -> None:
    hops = [
        *(("a", 0, seq, 20, 30) for seq in range(0, 2000, 100)),
        ("spare", 0, 2000, 20, 30),
        ("a", 0, 2100, 20, 30), ("a", 0, 2100, 40, 50),  # a loop, or a message that was sent again
        ("a", 0, 2200, 20, 30),  # delivered twice
        ("a", 0, 2300, 20, 30),  # before the measure phase
    ]  # fmt: skip
    received = [
        *(delivery(seq, 10, 60) for seq in range(0, 2200, 100)),
        delivery(2200, 10, 60),
        delivery(2200, 10, 70, receiver=1),
        delivery(2300, 10, 60, intended_ns=-5),
    ]
    found = {(row.route, row.position): (row.messages, row.p50_ns) for row in steps(spark, hops, received)}
    assert found == {
        ("a", 0): (20, 10), ("a", 1): (20, 10), ("a", 2): (20, 30),
        ("spare", 0): (1, None), ("spare", 1): (1, None), ("spare", 2): (1, None),
    }  # fmt: skip
