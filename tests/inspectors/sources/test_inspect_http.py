"""What can an HTTP server do wrong, and how is it reported?"""

import base64
import socket
import time
from pathlib import Path

import pytest

from crescendo.inspectors.base import InspectionTarget
from crescendo.inspectors.registry import INSPECTORS, inspector_of
from crescendo.inspectors.sources.http import Http
from crescendo.model.errors import ConfigError, PeerError
from crescendo.net.sockets import listen
from misbehaving_http import Behaviour, abrupt, answering, dribbling, endless, serving, silent

TIMEOUT_S = 0.5
LONG_TIMEOUT_S = 15.0  # on a busy machine; never only by the timeout of a single read
OVER_HTTP = ("activemq", "artemis", "qpid-broker-j", "rabbitmq")


@pytest.mark.parametrize(
    ("behave", "message"),
    [
        (answering("500 Internal Server Error", b"{}"), "HTTP 500"),
        (answering("401 Unauthorized", b"{}", 'WWW-Authenticate: Basic realm="x"\r\n'), "denies access to this user"),
        (answering("302 Found", b"", "Location: http://127.0.0.2/\r\n"), "HTTP 302"),
        (answering("200 OK", b"<html>sign in</html>"), "not JSON"),
        (answering("200 OK", b'{"cut": '), "not JSON"),
        (answering("200 OK", b"[" * 100_000), "not JSON"),
        (answering("200 OK", b"\xff\xfe\x00{"), "not JSON"),
        (answering("200 OK", b"\x1f\x8bnot gzip", "Content-Encoding: gzip\r\n"), "could not be queried"),
        (abrupt, "could not be queried"),
        (silent, "did not answer within 0.5 s"),
        (dribbling, "did not finish its answer within 0.5 s"),
        (endless, "more than|did not finish"),
    ],
)
def test_every_fault_of_a_server_is_a_peer_error_in_time(behave: Behaviour, message: str) -> None:
    with serving(behave) as url:
        http = Http(url, timeout_s=TIMEOUT_S)
        started_s = time.monotonic()
        with pytest.raises(PeerError, match=message) as failure:
            http.get("/api")
        http.close()
        assert time.monotonic() - started_s < LONG_TIMEOUT_S
        assert "hush" not in str(failure.value)
        assert "127.0.0.1" in str(failure.value)


def test_a_port_where_nobody_listens_is_asked_about() -> None:
    with listen() as taken:
        port = taken.getsockname()[1]
    http = Http(f"http://user:hush@127.0.0.1:{port}")
    with pytest.raises(PeerError, match=r"could not be queried: Connection refused; is it running, and .* its port\?"):
        http.get("/api")
    http.close()


def test_an_endless_answer_is_cut_off_by_its_size() -> None:
    with serving(endless) as url:
        http = Http(url, timeout_s=LONG_TIMEOUT_S)
        with pytest.raises(PeerError, match="more than 16777216 bytes"):
            http.get("/api")
        http.close()


def test_the_request_after_a_failed_one_uses_a_new_connection() -> None:
    answers = iter([answering("500 Internal Server Error", b""), answering("200 OK", b'{"well": true}')])

    def behave(connected: socket.socket, request: bytes) -> None:
        next(answers)(connected, request)

    with serving(behave) as url:
        http = Http(url, timeout_s=LONG_TIMEOUT_S)
        with pytest.raises(PeerError):
            http.get("/api")
        assert http.get("/api") == {"well": True}
        http.close()
        http.close()


def test_credentials_are_sent_in_the_header_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # would refuse if it were used
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    requests: list[bytes] = []

    def behave(connected: socket.socket, request: bytes) -> None:
        requests.append(request)
        answering("200 OK", b"[]")(connected, request)

    with serving(behave) as url:
        http = Http(url.replace("user:hush", "us%40er:h%3Aush"), timeout_s=LONG_TIMEOUT_S)
        assert http.post("/api", [1]) == []
        http.close()
    head = requests[0].decode()
    assert head.startswith("POST /api HTTP/1.1\r\n")
    assert base64.b64encode(b"us@er:h:ush").decode() in head
    assert "hush" not in head


@pytest.mark.parametrize("kind", OVER_HTTP)
@pytest.mark.parametrize("answer", [b"[]", b"{}", b"3", b"null", b'"words"', b"[1, 2, 3]", b'[{"value": 1}]'])
def test_json_of_another_shape_is_at_worst_a_failed_inspection(kind: str, answer: bytes) -> None:
    with serving(answering("200 OK", answer)) as url:
        inspector = inspector_of(kind)(InspectionTarget({"management": url}))
        try:
            inspection = inspector.inspect()
        except PeerError:
            inspection = None
        finally:
            inspector.close()
        assert inspection is None or not any("hush" in text for text in inspection.texts.values())
        if kind in {"activemq", "artemis"}:
            assert inspection is None  # none of these is a Jolokia answer


@pytest.mark.parametrize("kind", [kind for kind in INSPECTORS if kind != "process"])
def test_an_inspector_without_its_url_says_which_one_it_needs(kind: str) -> None:
    with pytest.raises(ConfigError, match="endpoint to inspect; give it a url such as"):
        inspector_of(kind)(InspectionTarget({}))
    with pytest.raises(ConfigError, match="cannot inspect its management url") as failure:
        inspector_of(kind)(InspectionTarget({"management": "ftp://user:hush@127.0.0.1:nonsense"}))
    assert "hush" not in str(failure.value)


def test_an_unknown_kind_names_the_known_ones() -> None:
    with pytest.raises(ConfigError) as mistake:
        inspector_of("hornetq")
    assert all(kind in str(mistake.value) for kind in ("artemis", "mosquitto", "process"))


def test_every_inspector_has_its_module() -> None:
    modules = {path.stem for path in Path(__file__).parents[3].glob("src/crescendo/inspectors/kinds/*.py")}
    assert {path.partition(":")[0] for path in INSPECTORS.values()} <= modules
    for kind in INSPECTORS:
        assert callable(inspector_of(kind))
