"""Files that URLs name, and names in place of them."""

import pytest

from crescendo.model.errors import ConfigError
from crescendo.model.url_files import files_of_url, url_with_given_files, with_files_at

URL = "amqps://ada:p%40ss%3Fca=x@host:5671/queue/perf?ca=/etc/my%20ca.pem&durable=yes&key=k.pem#part"


def test_only_the_options_that_are_files_are_replaced() -> None:
    assert files_of_url(URL) == ["/etc/my ca.pem", "k.pem"]
    changed = with_files_at(URL, {"/etc/my ca.pem": "tls-0", "k.pem": "tls-1"})
    assert changed == "amqps://ada:p%40ss%3Fca=x@host:5671/queue/perf?ca=tls-0&durable=yes&key=tls-1#part"


@pytest.mark.parametrize("text", ["queue://perf", "amqp://host/queue/q?durable=yes", "http://[", ""])
def test_what_names_no_file_stays_as_it_is(text: str) -> None:
    assert files_of_url(text) == []
    assert with_files_at(text, {"perf": "other"}) == text


def test_a_file_that_was_not_given_is_not_read() -> None:
    with pytest.raises(ConfigError, match=r"'k\.pem' is not among the files that this peer was given"):
        url_with_given_files(URL, {"/etc/my ca.pem": "/given"})
