"""Is no secret shown of what people configure, in whatever form it is written?"""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from crescendo.model.errors import ConfigError
from crescendo.model.experiment_file import experiment_from, load_experiment, to_document
from crescendo.model.redaction import explain_yaml, redact_address, redact_override, redact_value

MARK = "s3cr3t"  # in every password, so that any part of one that is shown is noticed
printable = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=12)
passwords = st.tuples(printable, printable).map(lambda parts: f"{parts[0]}{MARK}{parts[1]}")
names = st.sampled_from(["password", "keyStorePassword", "db_passwd", "client-secret", "apiKey", "tokens", "PWD"])


@given(names, passwords)
def test_a_secret_is_hidden_at_any_depth(name: str, password: str) -> None:
    value = {"a": [{"b": {name: password, "user": "ada"}}], name: {"c": password}}
    assert redact_value(value) == {"a": [{"b": {name: "***", "user": "ada"}}], name: "***"}


@given(names, passwords)
def test_an_override_shows_no_secret_however_it_is_quoted(name: str, password: str) -> None:
    for text in (
        f"system.settings.{name}={password}",
        f"system.settings={json.dumps({name: password})}",
        f"system={yaml.safe_dump({'settings': {name: password}}, default_flow_style=True, width=10**6).strip()}",
        f"system.settings={{{name}: {password}",
        f"system.settings.{name}:{password}",
    ):
        assert MARK not in redact_override(text).partition(name)[2]
        assert MARK not in redact_override(text).partition("=")[2]


@given(passwords)
def test_an_error_about_an_override_shows_nothing_of_its_value(password: str) -> None:
    for text in (
        f"system.settings.password=[{password}",
        f"system.settings.password=*{password}",
        f"system.settings.password=!{password} x",
        f"name.password={password}",
        f"system.settings.password:{password}",
    ):
        assert MARK not in _outcome(text)


def _outcome(override: str) -> str:
    """The error that a person sees, or what a recording would say."""
    try:
        experiment = experiment_from({"name": "x", "workload": {"address": "queue://a"}}, (override,))
    except ConfigError as err:
        return f"{err} {err.__cause__}"
    return str(to_document(experiment.redacted()))


@pytest.mark.parametrize("line", ["password: [s3cr3t", "password: *s3cr3t", "password: !s3cr3t x", "password: 's3cr3t"])
def test_an_error_about_a_file_quotes_none_of_it(line: str, tmp_path: Any) -> None:
    (tmp_path / "it.yml").write_text(f"system:\n  settings:\n    {line}\n")
    with pytest.raises(ConfigError, match=r"it\.yml: this is not YAML: .+ \(line \d") as caught:
        load_experiment(tmp_path / "it.yml")
    assert MARK not in str(caught.value)


def test_an_error_in_yaml_says_what_and_where() -> None:
    with pytest.raises(yaml.YAMLError) as caught:
        yaml.safe_load("a: 1\nb: [1")
    assert explain_yaml(caught.value) == "expected ',' or ']', but got '<stream end>' (line 2, column 6)"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("amqp://host:5672/queue/a@b", "amqp://host:5672/queue/a@b"),
        ("amqp://user@host/topic/a:b@c", "amqp://user@host/topic/a:b@c"),
        ("amqp://user:pw@host/queue/a@b", "amqp://user:***@host/queue/a@b"),
        ("amqp://us@er:p:w@host/queue/a@b?durable=yes", "amqp://us@er:***@host/queue/a@b?durable=yes"),
        ("queue://a:b@c", "queue://a:b@c"),
        ("amqp://user:p/w@host/queue/a", "amqp://user:***@host/queue/a"),  # not valid: the @ ends a password
        ("failover:(tcp://user:pw@host)", "failover:(tcp://user:***@host)"),
        ("amqp:/\n/user:pw@host", "amqp://user:***@host"),  # urlsplit ignores the line break
        ("user:pw@host", "user:pw@host"),  # not a URL
        ("queue://x=amqp://user:pw@host", "queue://x=amqp:***@host"),
    ],
)
def test_an_at_sign_in_a_queue_name_is_not_the_end_of_a_password(text: str, shown: str) -> None:
    assert redact_address(text) == shown


def test_a_recorded_experiment_keeps_the_names_of_its_queues() -> None:
    document = {"name": "x", "workload": {"address": "amqp://u:s3cr3t@h:5672/queue/a@b", "protocol": "amqp10"}}
    experiment = experiment_from(document).redacted()
    assert experiment.workload[0].address == "amqp://u:***@h:5672/queue/a@b"
    assert experiment.workload[0].destination == "a@b"


@pytest.mark.parametrize(
    ("override", "shown"),
    [
        ("system.url=amqp://u:p@h", "system.url=amqp://u:***@h"),
        ("system.settings.password=hun,ter2", "system.settings.password=***"),
        (
            "system={kind: a, settings: {password: 'x''y, z', user: u}}",
            "system={kind: a, settings: {password: '***', user: u}}",
        ),
        ('system={"settings": {"password": "a\\"b"}}', "system={settings: {password: '***'}}"),
        ("workload.address=queue://tokens?ttl=5s", "workload.address=queue://tokens?ttl=5s"),
        ("workload.address=amqp://h:5672/queue/a@b", "workload.address=amqp://h:5672/queue/a@b"),
        (
            "workload.address=[amqp://u:p/q@h/queue/a, queue://b]",
            "workload.address=['amqp://u:***@h/queue/a', 'queue://b']",
        ),
        ("system.settings.password=[hunter2", "system.settings.password=***"),
        ("inspect=[hunter2", "inspect=***"),
        ("system.settings.password:hunter2", "system.settings.password"),
    ],
)
def test_an_override_is_recorded_without_secrets(override: str, shown: str) -> None:
    assert redact_override(override) == shown
