"""Mosquitto, compared with what a paho client did."""

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from crescendo.inspectors.base import InspectionTarget
from crescendo.inspectors.kinds.mosquitto import BROKER, MosquittoInspector
from crescendo.model.errors import ConfigError, PeerError
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.systems.base import Instance
from crescendo.systems.instance import start
from crescendo.systems.registry import system_of
from inspecting import TIMEOUT_S, inspect_until, inspect_until_failure, values_of

SENT, SIZE = 25, 100


@pytest.fixture
def inspector(mosquitto: Instance) -> Iterator[MosquittoInspector]:
    with closing(MosquittoInspector(InspectionTarget(mosquitto.endpoints))) as inspector:
        yield inspector


def settled(inspector: MosquittoInspector, after_s: float = 2.0) -> dict[tuple[str, str], float]:
    """The values once the broker has counted all earlier traffic: at least the message of the readiness probe."""
    begun = values_of(inspector.inspect())[BROKER, "uptime"]
    deadline_s = time.monotonic() + TIMEOUT_S
    while True:
        values = values_of(inspector.inspect())
        if values[BROKER, "uptime"] >= begun + after_s and values[BROKER, "publish/messages/received"] >= 1:
            return values
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def test_the_broker_counts_what_a_client_published(mosquitto: Instance, inspector: MosquittoInspector) -> None:
    before = settled(inspector)
    url = urlsplit(mosquitto.endpoints["mqtt"])
    client = mqtt.Client(CallbackAPIVersion.VERSION2)
    client.username_pw_set(url.username, url.password)
    client.connect(url.hostname, url.port)
    client.loop_start()
    for number in range(SENT):
        client.publish(f"watched/{number}", bytes(SIZE), qos=0).wait_for_publish(TIMEOUT_S)
    inspection = inspect_until(
        inspector,
        {
            (BROKER, "publish/messages/received"): before[BROKER, "publish/messages/received"] + SENT,
            (BROKER, "publish/bytes/received"): before[BROKER, "publish/bytes/received"] + SENT * SIZE,
            (BROKER, "clients/connected"): 2,  # the client and the inspector
        },
    )
    assert inspection.texts[BROKER, "version"].startswith("mosquitto version")
    client.disconnect()
    client.loop_stop()
    inspect_until(inspector, {(BROKER, "clients/connected"): 1})


def test_the_first_inspection_is_already_complete(mosquitto: Instance, inspector: MosquittoInspector) -> None:
    later = settled(inspector).keys()
    with closing(MosquittoInspector(InspectionTarget(mosquitto.endpoints))) as fresh:
        assert values_of(fresh.inspect()).keys() >= later


def test_every_inspection_of_a_stopped_broker_fails(tmp_path: Path) -> None:
    instance = start(system_of("mosquitto"), {}, directory=tmp_path / "instance", on_fork=die_with_parent())
    endpoints = dict(instance.endpoints)
    with closing(MosquittoInspector(InspectionTarget(endpoints), timeout_s=1.0)) as inspector:
        inspector.inspect()
        instance.stop()
        assert "ended the connection" in inspect_until_failure(inspector)
        with pytest.raises(PeerError, match="cannot be reached"):
            inspector.inspect()


def test_old_values_of_a_hanging_broker_are_not_reported_as_new(tmp_path: Path) -> None:
    instance = start(system_of("mosquitto"), {}, directory=tmp_path / "instance", on_fork=die_with_parent())
    try:
        with closing(MosquittoInspector(InspectionTarget(dict(instance.endpoints)), timeout_s=TIMEOUT_S)) as inspector:
            settled(inspector, 5.0)  # by then it knows the interval of this broker
            os.kill(instance.pid, signal.SIGSTOP)
            assert "has published nothing under $SYS" in inspect_until_failure(inspector)
            os.kill(instance.pid, signal.SIGCONT)
            inspector.inspect()
    finally:
        instance.stop()


def test_a_wrong_password_is_reported_without_the_password(mosquitto: Instance) -> None:
    url = re.sub(r":[^:/@]+@", ":wrong-one@", mosquitto.endpoints["mqtt"])
    with pytest.raises(PeerError, match="denies access") as failure:
        MosquittoInspector(InspectionTarget({"mqtt": url})).inspect()
    assert "wrong-one" not in str(failure.value)


def test_an_unreachable_broker_is_reported() -> None:
    inspector = MosquittoInspector(InspectionTarget({"management": "mqtt://127.0.0.1:9"}), timeout_s=1.0)
    started_s = time.monotonic()
    with pytest.raises(PeerError, match=r"127\.0\.0\.1:9 cannot be reached"):
        inspector.inspect()
    assert time.monotonic() - started_s < TIMEOUT_S


def test_a_url_of_another_protocol_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="mqtt://"):
        MosquittoInspector(InspectionTarget({"management": "http://127.0.0.1:1"}))
