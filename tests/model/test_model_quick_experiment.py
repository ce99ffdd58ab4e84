"""Does a one-line command mean the experiment that its user expects?"""

from pathlib import Path

import pytest
import yaml

from crescendo.model.errors import ConfigError
from crescendo.model.experiment_file import experiment_from, load_experiment
from crescendo.model.protocols import OWN
from crescendo.model.quick_experiment import LoadFlags, commented_file, quick_document
from crescendo.model.urls import without_credentials


@pytest.mark.parametrize("protocol", OWN.values(), ids=OWN.keys())
def test_the_protocol_follows_from_the_url(protocol: object) -> None:
    for scheme in protocol.schemes:  # type: ignore[attr-defined]
        experiment = experiment_from(quick_document(f"{scheme}://host", LoadFlags()))
        assert experiment.workload[0].protocol == protocol.name  # type: ignore[attr-defined]


def test_flags_become_keys() -> None:
    flags = LoadFlags(
        queue="orders", producers=3, consumers=2, rate=50.0, size="1KB", length="30s", persistent=True, confirm=10
    )
    experiment = experiment_from(quick_document("amqp091://u:p@host/shop", flags))
    (group,) = experiment.workload
    assert (group.destination, group.target.options.durable, group.window) == ("orders", True, 10)
    assert (group.senders, group.receivers, group.rate, int(group.size)) == (3, 2, 50, 1000)
    assert str(experiment.phases.measure) == "30s"
    assert experiment.system.url == "amqp091://u:p@host/shop"


def test_without_a_queue_each_run_has_its_own() -> None:
    experiment = experiment_from(quick_document("amqp://host", LoadFlags()))
    names = {experiment.for_run(run).workload[0].destination for run in ("0000000a", "0000000b")}
    assert len(names) == 2


@pytest.mark.parametrize(
    ("url", "consumers", "address"),
    [
        ("amqp://host", 1, "queue://crescendo-{run}"),
        ("stomp://host", 1, "queue://crescendo-{run}"),  # only RabbitMQ can delete it
        ("amqp091://host", 1, "queue://crescendo-{run}?temporary=yes"),
        ("openwire://host", 2, "queue://crescendo-{run}?temporary=yes"),
        ("core://host", 1, "queue://crescendo-{run}?temporary=yes"),
        ("mqtt://host", 1, "topic://crescendo-{run}"),  # RabbitMQ 3.10 cannot share a subscription
        ("mqtt://host", 2, "queue://crescendo-{run}?temporary=yes"),
    ],
)
def test_the_own_destination_is_one_that_every_system_of_the_protocol_has(
    url: str, consumers: int, address: str
) -> None:
    assert quick_document(url, LoadFlags(consumers=consumers))["workload"]["address"] == address


def test_an_unbounded_rate_is_not_compared_with_an_offered_one() -> None:
    assert experiment_from(quick_document("amqp://host", LoadFlags(rate=0.0))).checks == {"rate": "> 0", "lost": "== 0"}


@pytest.mark.parametrize(
    ("url", "flags", "cure"),
    [
        ("host:5672", LoadFlags(), "begin with amqp://"),
        ("http://u:hunter2@host", LoadFlags(), "begin with amqp://"),
        ("ampqs://u:hunter2@host", LoadFlags(), "did you mean 'amqps://'"),
        ("amqp://u:hunter2@host:99999", LoadFlags(), r"should read amqp://\[user:password@\]host"),
        ("amqp://host", LoadFlags(queue="a", topic="b"), "give one of the two"),
        ("mqtt://host", LoadFlags(persistent=True), "leave it out"),
    ],
)
def test_mistakes_name_the_cure_and_no_password(url: str, flags: LoadFlags, cure: str) -> None:
    with pytest.raises(ConfigError, match=cure) as raised:
        experiment_from(quick_document(url, flags))
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    "flags",
    [LoadFlags(), LoadFlags(topic="t", rate=0.0, size="10KB"), LoadFlags(queue="a-b#c", confirm=5, persistent=True)],
)
def test_the_commented_file_is_the_same_experiment(flags: LoadFlags, tmp_path: Path) -> None:
    document = quick_document("amqp://host:5672", flags)
    path = tmp_path / "mine.yml"
    path.write_text(commented_file(document))
    assert load_experiment(path) == experiment_from(document)
    assert yaml.safe_load(path.read_text()).keys() == document.keys()


def test_the_arguments_are_those_that_were_given() -> None:
    assert LoadFlags().arguments == []
    given = LoadFlags(rate=20.0, length="5s", persistent=True, confirm=3).arguments
    assert given == ["--rate", "20", "--for", "5s", "--persistent", "--confirm", "3"]


def test_credentials_are_removed_from_a_url() -> None:
    assert without_credentials("amqp091://u:p%40x@host:5672/shop?ca=a.pem") == "amqp091://host:5672/shop?ca=a.pem"
    assert without_credentials("mqtt://host") == "mqtt://host"
