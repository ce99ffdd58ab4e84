"""A TLS server of Python's own blocking ssl sockets in a thread: the peer of the tests."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE_S = 30.0


def context_of(pair: tuple[Path, Path], *, clients: Path | None = None) -> ssl.SSLContext:
    """The server's context; with `clients` it requires a client certificate signed by that authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair)
    if clients is not None:
        context.load_verify_locations(clients)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


@contextmanager
def serving(context: ssl.SSLContext, serve: Callable[[ssl.SSLSocket], None]) -> Iterator[int]:
    """Accept one client and serve it; yields the port. An error in `serve` fails the test."""
    failures: list[BaseException] = []

    def serve_one() -> None:
        with contextlib.suppress(TimeoutError):
            raw, _ = listener.accept()
            raw.settimeout(PATIENCE_S)
            try:
                with context.wrap_socket(raw, server_side=True) as secure:
                    serve(secure)
            except (ssl.SSLError, ConnectionError):
                pass  # one side refused the other; the test checks what the client reports
            except BaseException as err:
                failures.append(err)
            finally:
                raw.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_S)
        thread = threading.Thread(target=serve_one)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
    assert not failures, failures
