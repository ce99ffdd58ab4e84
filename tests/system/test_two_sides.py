"""A group whose senders and receivers connect to different places, and speak different protocols there."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

from crescendo.model.errors import ConfigError
from crescendo.model.experiment_file import experiment_from, to_document
from crescendo.model.protocols import AMQP10, STOMP
from crescendo.model.url_files import files_of_addresses, with_address_files_at
from crescendo.run.planning import SystemUnderTest, plan_run
from crescendo.systems.instance import RunningInstance
from whole_runs import Launcher, judged

NORTH, SOUTH = "amqp://user:secret@north:5672", "stomp://user:secret@south?ca=ca.pem"


def planned(system: dict[str, Any] | None = None, **group: Any) -> dict[str, dict[str, Any]]:
    """Role -> protocol and address of its group, and the URLs of the system, as its peers get them."""
    experiment = experiment_from({"name": "two", "system": system or {"kind": "loopback"}, "workload": group})
    arrangement = plan_run(experiment, tag=1, system=SystemUnderTest({"amqp": "amqp://system:5672"}))
    found = {}
    for peer in arrangement.plan.peers:
        (seen,) = peer.assignment["experiment"]["workload"]
        found[peer.role] = {
            "protocol": seen.get("protocol", AMQP10.name),
            "address": seen.get("address"),
            "urls": peer.assignment["urls"],
        }
    return found


def numbers_of(run_dir: Path, table: str) -> list[tuple[int, int]]:
    query = f"SELECT sender, seq FROM '{run_dir}/{table}/*.parquet' ORDER BY ALL"  # noqa: S608 - our own path
    return duckdb.sql(query).fetchall()


def test_each_side_has_its_own_place_and_the_protocol_of_its_url() -> None:
    seen = planned(send_to=NORTH, receive_from=SOUTH)
    assert seen["sender"] == {"protocol": AMQP10.name, "address": f"{NORTH}/queue/perf", "urls": {}}
    assert seen["receiver"]["protocol"] == STOMP.name
    assert seen["receiver"]["address"] == "stomp://user:secret@south/queue/perf?ca=ca.pem"


def test_a_side_without_a_place_uses_the_system() -> None:
    seen = planned(send_to="north:5673")
    assert seen["sender"]["address"] == "amqp://north:5673/queue/perf"
    assert seen["receiver"]["urls"] == {AMQP10.name: "amqp://system:5672"}


def test_a_host_is_the_url_of_the_system_at_that_host() -> None:
    seen = planned({"url": "amqp://me:secret@system:5999"}, send_to="north", receive_from="south:1")
    assert seen["sender"]["address"] == "amqp://me:secret@north:5999/queue/perf"
    assert seen["receiver"]["address"] == "amqp://me:secret@south:1/queue/perf"


def test_passwords_of_places_are_not_shown_and_their_files_travel() -> None:
    experiment = experiment_from({"name": "two", "workload": {"send_to": NORTH, "receive_from": SOUTH}})
    assert "secret" not in str(to_document(experiment.redacted()))
    assert files_of_addresses(experiment) == ["ca.pem"]
    (group,) = with_address_files_at(experiment, {"ca.pem": "tls-0"}).workload
    assert group.receive_from == "stomp://user:secret@south?ca=tls-0"


@pytest.mark.parametrize(
    ("group", "sentence"),
    [
        ({"send_to": "nowhere at all"}, "send_to: write a URL, a host"),
        ({"send_to": "ftp://north"}, "send_to: .*amqp"),
        ({"receive_from": "amqp091://south/shop"}, "receive_from: virtual hosts"),
        (
            {"address": "amqp://a:1/queue/perf", "send_to": NORTH},
            "send_to: the address names the system; remove send_to",
        ),
        ({"settle": "exactly-once", "receive_from": SOUTH}, "receive_from: stomp does not support exactly-once"),
        ({"address": "queue://perf?selector=a", "send_to": "mqtt://north"}, "send_to: .*selector"),
    ],
)
def test_what_one_side_cannot_do_is_refused_with_its_key(group: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        experiment_from({"name": "two", "workload": group})


def test_messages_sent_in_one_protocol_are_received_in_another(
    artemis: RunningInstance, launch: Launcher, experiment: Callable[..., Path], spark: SparkSession
) -> None:
    path = experiment(
        system={"url": artemis.endpoints[AMQP10.endpoint]},
        workload={
            "address": "queue://two-sides.{run}",
            "send_to": artemis.endpoints[AMQP10.endpoint],
            "receive_from": artemis.endpoints[STOMP.endpoint],
            "senders": 1,
            "receivers": 1,
            "rate": 100,
            "size": 256,
        },
        phases={"warmup": "0s", "measure": "1s", "drain": "20s"},
        checks={"lost": 0, "duplicated": 0, "corrupt": 0, "reordered": 0},
    )
    session = launch.without_analysis(path)
    ended = session.finish()
    assert (ended.returncode, ended.stdout) == (0, "sealed\n"), ended.stderr
    run_dir = session.run_dir()
    sent, received = (numbers_of(run_dir, table) for table in ("sent", "received"))
    assert len(sent) == 100
    assert received == sent
    summary = judged(session, spark)
    assert summary.verdict.outcome == "pass", summary.verdict
    total = summary.total
    assert (total.sent, total.settled, total.delivered, total.stray) == (100, 100, 100, 0)
