"""How does the web server start, and how does it end?

One server per directory of runs. On the loopback interface it prints a link with a one-time token; beyond it, it
demands TLS and at least one account, and refuses to start without. Ctrl-C stops the run under way, keeps its recording,
and leaves the queue for the next start; a killed server leaves the run alone, and the next one finds it.
"""

import asyncio
import contextlib
import ipaddress
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from crescendo.model.errors import ConfigError
from crescendo.web.application import guarded, routes_of
from crescendo.web.audit_log import AuditLog
from crescendo.web.experiment_store import ExperimentStore
from crescendo.web.known_clusters import KnownClusters
from crescendo.web.page_routes import Services
from crescendo.web.run_index import RunIndex
from crescendo.web.run_queue import RunQueue
from crescendo.web.web_access import WebAccess
from crescendo.web.web_directory import WebDirectory

_GRACE_S = 2


@dataclass(frozen=True)
class WebOptions:
    """What the verb was given."""

    runs: Path
    host: str = "127.0.0.1"
    port: int = 0
    certificate: Path | None = None
    key: Path | None = None
    names: tuple[str, ...] = ()
    any_file: bool = False
    rebuild: bool = False
    clusters: tuple[Path, ...] = ()


class _Server(uvicorn.Server):
    """Lets endless answers end when the server shall stop."""

    def __init__(self, config: uvicorn.Config, stopping: asyncio.Event, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._stopping, self._on_ready = stopping, on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._stopping.set()
        await super().shutdown(sockets)


def serve(options: WebOptions, announce: Callable[[str], None]) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    access = checked_access(options)
    clusters = KnownClusters(options.clusters)
    directory = WebDirectory(options.runs)
    directory.lock()
    listener = _listen(options.host, options.port)
    scheme = "http" if options.certificate is None else "https"
    shown = f"[{options.host}]" if ":" in options.host else options.host
    port = listener.getsockname()[1]
    origin = f"{scheme}://{options.names[0] if options.names else shown}:{port}"
    index = RunIndex(directory, rebuild=options.rebuild)
    index.refresh(at_once=True)
    queue = RunQueue(directory, any_file=options.any_file, clusters=clusters)
    services = Services(
        directory,
        ExperimentStore(directory, any_file=options.any_file),
        index,
        queue,
        access,
        AuditLog(directory.own / "audit.log"),
        origin,
        _metrics_token(directory.own),
    )
    app = routes_of(services)
    hosts = [options.host, "localhost", *options.names] if is_loopback(options.host) else [options.host, *options.names]
    config = uvicorn.Config(
        guarded(app, hosts),
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_S,
        ssl_certfile=options.certificate,
        ssl_keyfile=options.key,
        lifespan="off",
        ws="none",
        proxy_headers=False,
    )

    def ready() -> None:
        if access.accounts and not is_loopback(options.host):
            announce(f"{origin}/login")
        else:
            announce(f"{origin}/login?token={access.new_link()}")

    queue.start()
    try:
        with contextlib.suppress(KeyboardInterrupt):  # which uvicorn raises again when it has ended in order
            _Server(config, app.state.stopping, ready).run(sockets=[listener])
    finally:
        queue.end()
        listener.close()
        directory.unlock()


def checked_access(options: WebOptions) -> WebAccess:
    """Accounts and sessions. ConfigError if strangers could come in."""
    if (options.certificate is None) != (options.key is None):
        raise ConfigError("--certificate and --key go together")
    for option, path in (("--certificate", options.certificate), ("--key", options.key)):
        if path is not None and not path.is_file():
            raise ConfigError(f"{option} {path}: no such file")
    access = WebAccess(WebDirectory(options.runs).own)
    if not is_loopback(options.host):
        if options.certificate is None:
            raise ConfigError(
                f"--host {options.host}: other machines can reach it, so passwords and cookies need TLS; give "
                "--certificate FILE and --key FILE, or stay on 127.0.0.1 and use ssh -L"
            )
        if not options.names and options.host in {"0.0.0.0", "::"}:  # noqa: S104 - compared, not bound
            raise ConfigError(f"--host {options.host}: add --name NAME, under which browsers reach this machine")
        if not access.accounts:
            raise ConfigError(
                f"--host {options.host}: other machines can reach it, so people need accounts; add the first with "
                "crescendo web --add-account NAME --role admin"
            )
    return access


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as err:
        listener.close()
        reason = err.strerror if isinstance(err, OSError) else str(err)
        raise ConfigError(f"--host {host} --port {port}: cannot listen there: {reason}; give another --port") from err
    listener.set_inheritable(False)
    return listener


def _metrics_token(own: Path) -> str:
    """The token of programs that read /metrics; the same after a restart."""
    path = own / "metrics-token"
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        token = secrets.token_urlsafe(32)
        path.touch(mode=0o600)
        path.write_text(f"{token}\n")
        return token
