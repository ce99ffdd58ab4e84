"""The verb `web`: the lab in a browser."""

from pathlib import Path
from typing import Annotated

import typer

from crescendo.cli.options import Out


def web(
    out: Out = Path("runs"),
    host: Annotated[
        str, typer.Option("--host", help="Where to listen. Other than loopback needs TLS and accounts.")
    ] = ("127.0.0.1"),
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes any free one.")] = 8421,
    certificate: Annotated[
        Path | None, typer.Option("--certificate", metavar="FILE", help="The certificate of this server, PEM.")
    ] = None,
    key: Annotated[Path | None, typer.Option("--key", metavar="FILE", help="Its private key, PEM.")] = None,
    name: Annotated[
        list[str] | None, typer.Option("--name", help="A name that browsers use for this server. Repeatable.")
    ] = None,
    any_file: Annotated[
        bool, typer.Option("--any-file", help="Let experiments name files anywhere on this machine.")
    ] = False,
    cluster: Annotated[
        list[Path] | None,
        typer.Option("--cluster", metavar="FILE", help="A cluster file; runs may use its hosts. Repeatable."),
    ] = None,
    reindex: Annotated[bool, typer.Option("--reindex", help="Rebuild the index of runs.")] = False,
    add_account: Annotated[
        str | None,
        typer.Option("--add-account", metavar="NAME", help="Add or replace an account, and exit. Asks for a password."),
    ] = None,
    role: Annotated[str, typer.Option("--role", help="Of that account: viewer, operator or admin.")] = "viewer",
) -> int:
    """Define, run, watch and compare experiments in a browser.

    Prints one link; whoever opens it first is signed in. Ctrl-C ends the server and the run under way.
    """
    import signal
    import sys
    from dataclasses import replace

    from crescendo.web.web_server import WebOptions, serve

    if add_account is not None:
        from crescendo.web.web_access import WebAccess
        from crescendo.web.web_directory import WebDirectory

        WebAccess(WebDirectory(out).own).set_account(add_account, role, _password())
        print(f"{add_account} may now sign in as {role.lower()}")
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends like Ctrl-C, with the run under way
    options = WebOptions(out, host, port, certificate, key, tuple(name or ()), any_file, reindex)
    known = replace(options, clusters=tuple(cluster or ()))
    serve(known, lambda link: print(f"open    {link}", flush=True))
    print("stopped", file=sys.stderr)
    return 0


def _password() -> str:
    """From the terminal, twice; from standard input, its first line."""
    import getpass
    import sys

    from crescendo.model.errors import ConfigError

    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    password = getpass.getpass("password: ")
    if getpass.getpass("once more: ") != password:
        raise ConfigError("the two passwords differ; try again")
    return password
