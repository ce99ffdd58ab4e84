"""What an HTTP server can do wrong, and what becomes of it."""

import base64
import socket
import time
from pathlib import Path

import pytest

from crescendo.inspectors.base import InspectionTarget
from crescendo.inspectors.registry import INSPECTORS, inspector_of
from crescendo.inspectors.sources.http import Http
from crescendo.model.errors import ConfigError, PeerError
from misbehaving_http import Behaviour, abrupt, answering, dribbling, endless, serving, silent

TIMEOUT_S = 0.5
PATIENCE_S = 15.0  # on a busy machine; never by the time-out of a single read alone
OVER_HTTP = ("activemq", "artemis", "qpid-broker-j", "rabbitmq")


@pytest.mark.parametrize(
    ("behave", "words"),
    [
        (answering("500 Internal Server Error", b"{}"), "HTTP 500"),
        (answering("401 Unauthorized", b"{}", 'WWW-Authenticate: Basic realm="x"\r\n'), "does not let this user in"),
        (answering("302 Found", b"", "Location: http://127.0.0.2/\r\n"), "HTTP 302"),
        (answering("200 OK", b"<html>sign in</html>"), "not JSON"),
        (answering("200 OK", b'{"cut": '), "not JSON"),
        (answering("200 OK", b"[" * 100_000), "not JSON"),
        (answering("200 OK", b"\xff\xfe\x00{"), "not JSON"),
        (answering("200 OK", b"\x1f\x8bnot gzip", "Content-Encoding: gzip\r\n"), "could not be asked"),
        (abrupt, "could not be asked"),
        (silent, "did not answer within 0.5 s"),
        (dribbling, "did not finish its answer within 0.5 s"),
        (endless, "more than|did not finish"),
    ],
)
def test_whatever_a_server_does_wrong_is_a_peer_error_in_time(behave: Behaviour, words: str) -> None:
    with serving(behave) as url:
        http = Http(url, timeout_s=TIMEOUT_S)
        begun_s = time.monotonic()
        with pytest.raises(PeerError, match=words) as failure:
            http.get("/api")
        http.close()
        assert time.monotonic() - begun_s < PATIENCE_S
        assert "hush" not in str(failure.value)
        assert "127.0.0.1" in str(failure.value)


def test_an_endless_answer_is_cut_off_by_its_size() -> None:
    with serving(endless) as url:
        http = Http(url, timeout_s=PATIENCE_S)
        with pytest.raises(PeerError, match="more than 16777216 bytes"):
            http.get("/api")
        http.close()


def test_the_request_after_a_failed_one_begins_afresh() -> None:
    answers = iter([answering("500 Internal Server Error", b""), answering("200 OK", b'{"well": true}')])

    def behave(connected: socket.socket, request: bytes) -> None:
        next(answers)(connected, request)

    with serving(behave) as url:
        http = Http(url, timeout_s=PATIENCE_S)
        with pytest.raises(PeerError):
            http.get("/api")
        assert http.get("/api") == {"well": True}
        http.close()
        http.close()


def test_credentials_go_into_the_header_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # would refuse, if it were asked
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    requests: list[bytes] = []

    def behave(connected: socket.socket, request: bytes) -> None:
        requests.append(request)
        answering("200 OK", b"[]")(connected, request)

    with serving(behave) as url:
        http = Http(url.replace("user:hush", "us%40er:h%3Aush"), timeout_s=PATIENCE_S)
        assert http.post("/api", [1]) == []
        http.close()
    head = requests[0].decode()
    assert head.startswith("POST /api HTTP/1.1\r\n")
    assert base64.b64encode(b"us@er:h:ush").decode() in head
    assert "hush" not in head


@pytest.mark.parametrize("kind", OVER_HTTP)
@pytest.mark.parametrize("answer", [b"[]", b"{}", b"3", b"null", b'"words"', b"[1, 2, 3]", b'[{"value": 1}]'])
def test_json_of_another_shape_is_at_worst_a_failed_look(kind: str, answer: bytes) -> None:
    with serving(answering("200 OK", answer)) as url:
        inspector = inspector_of(kind)(InspectionTarget({"management": url}))
        try:
            look = inspector.inspect()
        except PeerError:
            look = None
        finally:
            inspector.close()
        assert look is None or not any("hush" in text for text in look.texts.values())
        if kind in {"activemq", "artemis"}:
            assert look is None  # nothing of this answers what was asked


@pytest.mark.parametrize("kind", [kind for kind in INSPECTORS if kind != "process"])
def test_an_inspector_without_its_url_says_which_one_it_needs(kind: str) -> None:
    with pytest.raises(ConfigError, match="endpoint to look at; give it a url such as"):
        inspector_of(kind)(InspectionTarget({}))
    with pytest.raises(ConfigError, match="cannot look at its management url") as failure:
        inspector_of(kind)(InspectionTarget({"management": "ftp://user:hush@127.0.0.1:nonsense"}))
    assert "hush" not in str(failure.value)


def test_an_unknown_kind_names_the_known_ones() -> None:
    with pytest.raises(ConfigError) as mistake:
        inspector_of("hornetq")
    assert all(kind in str(mistake.value) for kind in ("artemis", "mosquitto", "process"))


def test_every_inspector_has_its_module() -> None:
    modules = {path.stem for path in Path(__file__).parents[3].glob("src/crescendo/inspectors/kinds/*.py")}
    assert {module for module, _ in INSPECTORS.values()} <= modules
    for kind in INSPECTORS:
        assert callable(inspector_of(kind))
