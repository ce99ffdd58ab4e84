"""Is a URL parsed as written, and is its password never shown?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crescendo.model.urls import HIDDEN, parse_url, redact_url, redact_url_text

MARK = "s3cr3t"  # in every password, so that any part of one that is shown is noticed
raw = st.text(st.characters(codec="utf-8", exclude_characters="@"), max_size=12)
passwords = st.tuples(raw, raw).map(lambda parts: f"{parts[0]}{MARK}{parts[1]}")
users = st.text(st.characters(codec="utf-8", exclude_characters=":@"), max_size=12)
users_with_at = st.text("abzAZ09@", max_size=12)
encoded = st.text("abc0189-._~%40", max_size=12)
schemes = st.sampled_from(["amqp", "amqps", "stomp+ssl", "mqtt", "http", "failover:(tcp"])
rests = st.sampled_from(["", ":5672", "/queue/a", ":5672/queue/a@b", "?ca=x", "/?brokers=b:1,c:2"])


@given(schemes, users, passwords, rests)
def test_no_password_is_shown_whatever_it_contains(scheme: str, user: str, password: str, rest: str) -> None:
    url = f"{scheme}://{user}:{password}@host{rest}"
    for shown in (redact_url_text(url), redact_url_text(f"--set system.url={url} and more"), redact_url(url)):
        assert MARK not in shown


@given(users_with_at, encoded, rests)
def test_the_password_of_a_valid_url_is_hidden_and_nothing_else(user: str, password: str, rest: str) -> None:
    url = f"amqp://{user}:{password}{MARK}@host{rest}"
    assert redact_url(url) == f"amqp://{user}:{HIDDEN}@host{rest}"
    assert MARK not in redact_url_text(url)


@given(st.lists(st.tuples(users, passwords), min_size=2, max_size=3), st.sampled_from([", ", " ", "\n"]))
def test_no_password_is_shown_of_several_urls(credentials: list[tuple[str, str]], separator: str) -> None:
    text = separator.join(f"amqp://{user}:{password}@host/queue/a" for user, password in credentials)
    assert MARK not in redact_url_text(f"[{text}]")


@pytest.mark.parametrize(
    "text",
    [
        "amqp://host:5672/queue/a",
        "amqp://user@host:5672/queue/a@b",
        "queue://perf?durable=yes",
        "no URL: a@b",
        "amqp://h",
    ],
)
def test_text_without_a_password_stays_as_it_is(text: str) -> None:
    assert redact_url_text(text) == text
    assert redact_url(text) == text


@pytest.mark.parametrize(
    "url",
    [
        "amqp://u:s3cr3t@h:port",  # a port that is none
        "amqp://us/er:s3cr3t@h",
        "amqp://a@b:s3cr3t@h",
        "amqp://a@b:se/s3cr3t@h",
        "amqp://u:a\ns3cr3t@h",  # urlsplit ignores the line break
        "amqp://u:s3cr3t\n@h",
        "amqp://[u:s3cr3t@h",
        "http://admin:pa/s3cr3t@h:8161",
    ],
)
def test_a_password_in_a_malformed_url_is_hidden_too(url: str) -> None:
    assert "s3cr3t" not in redact_url(url)
    assert "s3cr3t" not in redact_url_text(url)


def test_the_parts_of_a_url_are_decoded() -> None:
    url = parse_url("amqp091://ada:s%40crt@host:77/my%20shop?ca=a.pem&verify=")
    assert (url.scheme, url.host, url.port, url.user, url.password) == ("amqp091", "host", 77, "ada", "s@crt")
    assert (url.virtual_host, url.options, url.server) == ("my shop", {"ca": "a.pem", "verify": ""}, "host:77")
    assert parse_url("amqp://h").user is None
    assert parse_url("http://[::1]:8161/console/").path == "/console/"


@given(passwords)
def test_neither_an_error_nor_a_representation_shows_the_password(password: str) -> None:
    try:
        shown = repr(parse_url(f"amqp://u:{password}@h:port"))
    except ValueError as error:
        shown = str(error)
    assert MARK not in shown
    assert MARK not in repr(parse_url(f"amqp://u:{MARK}@h:1"))
