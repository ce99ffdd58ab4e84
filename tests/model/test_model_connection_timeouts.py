"""Values that no protocol or kernel could carry out are refused where they are written."""

import pytest

from crescendo.model.errors import ConfigError
from crescendo.model.experiment_file import experiment_from


@pytest.mark.parametrize(
    ("workload", "complaint"),
    [
        ({"connection": {"heartbeat": "1500ms"}}, "heartbeat must be whole seconds, from 1s to 600s"),
        ({"connection": {"heartbeat": "20m"}}, "heartbeat must be whole seconds, from 1s to 600s"),
        ({"connection": {"keepalive": "0s"}}, "keepalive must be whole seconds, from 1s to 32767s"),
        ({"connection": {"user_timeout": "10us"}}, "user_timeout must be whole milliseconds, from 1ms to 1h"),
        ({"connection": {"timeout": "1s"}}, "timeout"),
        (
            {"connection": {"heartbeat": "2s"}, "protocol": "openwire"},
            "connection.heartbeat: openwire keeps its own; these can be set: amqp10, amqp091, stomp, mqtt",
        ),
        ({"connection": {"user_timeout": "2s"}, "client": "jms"}, "connection: client jms makes its own connections"),
    ],
)
def test_mistakes_name_the_key_and_the_cure(workload: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        experiment_from({"name": "x", "workload": workload})


def test_defaults_are_those_of_driver_and_kernel() -> None:
    (group,) = experiment_from({"name": "x"}).workload
    settings = group.connection
    assert (settings.heartbeat_ms(10_000), settings.keepalive_s, settings.user_timeout_ms) == (10_000, 0, 0)
