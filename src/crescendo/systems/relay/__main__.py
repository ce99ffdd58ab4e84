"""How is the relay started, and when does it end?

`python -m crescendo.systems.relay`: listens, prints its port, and serves until SIGTERM.
"""

import argparse
import json
import signal
import sys
from pathlib import Path
from types import FrameType

from crescendo.model.errors import ConfigError
from crescendo.net.sockets import listen
from crescendo.net.tls import server_context
from crescendo.systems.relay.server import Relay
from crescendo.wire.amqp10.handshake import Credentials


def main(arguments: list[str]) -> int:
    """Serve until SIGTERM. Credentials come from a file, never from the command line."""
    parser = argparse.ArgumentParser(prog="crescendo.systems.relay")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--credentials", type=Path, help='a file that contains ["user", "password"]')
    parser.add_argument("--tls-port", type=int, help="the port for TLS")
    parser.add_argument("--certificate", type=Path)
    parser.add_argument("--key", type=Path)
    parser.add_argument("--ca", type=Path, help="the CA that signs the certificates of clients")
    parser.add_argument("--client-certificates", choices=("required", "optional"))
    parser.add_argument("--router", type=Path, metavar="CONFIG", help="work as a router, from this file")
    parser.add_argument("--hops", type=Path, metavar="FILE", help="as a router: write when sampled messages passed")
    options = parser.parse_args(arguments)
    if options.router is not None:
        return route(options.router, options.hops)
    secret = options.credentials and options.credentials.read_text(encoding="utf-8")
    credentials = Credentials(*json.loads(secret)) if secret else None
    listener = listen(options.host, options.port)
    secure = None
    if options.tls_port is not None:
        context = server_context(options.certificate, options.key, options.ca, options.client_certificates)
        secure = (listen(options.host, options.tls_port), context)
    relay = Relay(listener, credentials, secure=secure)

    def stop(_signal: int, _frame: FrameType | None) -> None:
        relay.stopping = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the conductor handles Ctrl-C
    print(f"serving on port {listener.getsockname()[1]}", flush=True)
    try:
        relay.serve()
    finally:
        relay.close()
    return 0


def route(path: Path, hops: Path | None = None) -> int:
    """Serve as a router until SIGTERM. A mistake in the configuration is one sentence."""
    from crescendo.systems.relay.hop_samples import HopSamples
    from crescendo.systems.relay.router_config import read_router_config
    from crescendo.systems.relay.router_server import RouterServer

    try:
        server = RouterServer(read_router_config(path), HopSamples(hops) if hops else None)
    except ConfigError as err:
        print(err, file=sys.stderr)
        return 2
    except OSError as err:
        print(f"{path}: a listener or the file of hops cannot be opened: {err}", file=sys.stderr)
        return 2

    def stop(_signal: int, _frame: FrameType | None) -> None:
        server.stopping = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    print(f"routing on ports {', '.join(map(str, server.ports))}", flush=True)
    try:
        server.serve()
    finally:
        server.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
