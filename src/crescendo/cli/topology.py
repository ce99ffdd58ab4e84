"""The verbs of `topology`: networks of routers and brokers, from one file to their configuration and their picture."""

import json
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crescendo.cli.options import Json
from crescendo.cli.topology_probe import probe
from crescendo.model.errors import ConfigError

if TYPE_CHECKING:
    from crescendo.topology.generate import Network
    from crescendo.topology.rendering.router_schema import RouterSchema

TOPOLOGY_HELP = (
    "Networks of routers and brokers.\n\n"
    "One file names the machines and the links; [bold]generate[/bold] turns it into variables for every "
    "node, [bold]render[/bold] into their configuration files, [bold]show[/bold] into a picture, "
    "[bold]deploy[/bold] into a running network."
)

TopologyPath = Annotated[Path, typer.Argument(metavar="FILE", help="A topology file, or a graph in node-link format.")]
Output = Annotated[
    Path | None, typer.Option("--out", metavar="PATH", help="Write to this file instead of the terminal.")
]
NodeDirectory = Annotated[
    str | None,
    typer.Option("--directory", metavar="PATH", help="With --ansible: where nodes keep their files on their machines."),
]


class VariablesFormat(StrEnum):
    """How variables are written."""

    json = "json"
    yaml = "yaml"


def generate(
    file: TopologyPath,
    out: Output = None,
    written_as: Annotated[
        VariablesFormat | None, typer.Option("--format", help="Default: that of the output file, else yaml.")
    ] = None,
) -> int:
    """Generate the variables of every node: listeners, connectors, addresses, link routes."""
    network = _network(file)
    suffix = "yaml" if out is None else out.suffix.lstrip(".")
    chosen = written_as or (VariablesFormat.json if suffix == "json" else VariablesFormat.yaml)
    _write(out, variables_text(network.document(), chosen))
    return 0


def template(
    schema: Annotated[Path, typer.Argument(metavar="SCHEMA", help="qdrouter.json or skrouter.json of your router.")],
    out: Output = None,
) -> int:
    """Generate the Jinja2 template of a router's configuration file from the router's own schema."""
    from crescendo.topology.rendering.router_schema import read_schema, template_of

    _write(out, template_of(read_schema(schema)))
    return 0


def render(
    file: TopologyPath,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the files are written: DIR/<node>/…")],
    schema: Annotated[
        Path | None,
        typer.Option("--schema", help="The schema of your router. Default: that of the installed router."),
    ] = None,
    user: Annotated[str | None, typer.Option("--user", help="The user of all brokers.")] = None,
    password_file: Annotated[
        Path | None, typer.Option("--password-file", metavar="FILE", help="A file with the password of this user.")
    ] = None,
    anonymous: Annotated[bool, typer.Option("--anonymous", help="Brokers accept every client.")] = False,
) -> int:
    """Write the configuration files of every node."""
    from crescendo.topology.render import access_from
    from crescendo.topology.render import render as render_files
    from crescendo.topology.rendered_files import write_files

    network = _network(file)
    password = None if password_file is None else _secret(password_file)
    access = access_from(network, user, password, anonymous=anonymous)
    for path in write_files(out, render_files(network, access, _schema(network, schema))):
        print(path)
    return 0


def show(
    file: TopologyPath,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="PATH", help="The picture: a file that ends in .svg or .html.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="List what would not work; the exit code is 1 if anything is found.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Draw the network, or check it: unreachable nodes, port clashes, unknown hosts, costs, loops."""
    from crescendo.topology.network_check import check_network
    from crescendo.topology.picture import html_of, svg_of

    if out is None and not check:
        raise ConfigError("say what you want: --out picture.svg, --out page.html, or --check")
    if out is not None and out.suffix not in {".svg", ".html"}:
        raise ConfigError(f"--out {out}: the name of a picture ends in .svg or .html")
    network = _network(file, quiet=check)
    findings = check_network(network)
    if out is not None:
        _write(out, svg_of(network) if out.suffix == ".svg" else html_of(network, findings))
    if not check:
        return 0
    if as_json:
        print(json.dumps([{"problem": each.problem, "where": each.where, "text": each.text} for each in findings]))
    else:
        for each in findings:
            print(f"{each.problem}: {each}")
        print(f"{len(findings)} problems" if findings else "nothing wrong was found")
    return 1 if findings else 0


def deploy(
    file: TopologyPath,
    local: Annotated[bool, typer.Option("--local", help="Every node on this machine, on free loopback ports.")] = False,
    hosts: Annotated[
        bool,
        typer.Option(
            "--hosts",
            help="With --local: a host with an address of its own for each machine, on the ports of the file.",
        ),
    ] = False,
    ansible: Annotated[
        bool, typer.Option("--ansible", help="Every router on its machine of the inventory, with Ansible.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="With --ansible: say what would change, and change nothing.")
    ] = False,
    user: Annotated[str | None, typer.Option("--user", help="With --ansible: the user of all brokers.")] = None,
    password_file: Annotated[
        Path | None, typer.Option("--password-file", metavar="FILE", help="A file with the password of this user.")
    ] = None,
    directory: NodeDirectory = None,
    as_json: Json = False,
) -> int:
    """Start the network: here until Ctrl-C, or on the machines of the inventory until `down`."""
    if local == ansible:
        raise ConfigError("say where: --local on this machine, or --ansible on the machines of the inventory")
    if local:
        if check or user or password_file or directory:
            raise ConfigError("--check, --user, --password-file and --directory go with --ansible")
        return _run_locally(file, hosts=hosts, as_json=as_json)
    if hosts:
        raise ConfigError("--hosts goes with --local")
    from crescendo.cli.terminal import Progress
    from crescendo.topology import ansible_deployment
    from crescendo.topology.rendering.access import Access

    password = "" if password_file is None else _secret(password_file)
    with ansible_deployment.private_directory() as work, Progress() as progress:
        network = _network(file, quiet=True)
        at = directory or ansible_deployment.DIRECTORY
        done = ansible_deployment.deploy(
            network, Access(user or "", password), work, progress, check=check, directory=at
        )
    _print_changes(done.changed, "would change" if check else "changed", as_json=as_json)
    return 0


def down(file: TopologyPath, directory: NodeDirectory = None, as_json: Json = False) -> int:
    """Stop the routers that `deploy --ansible` started, and remove their files."""
    from crescendo.cli.terminal import Progress
    from crescendo.topology import ansible_deployment

    with ansible_deployment.private_directory() as work, Progress() as progress:
        network = _network(file, quiet=True)
        at = directory or ansible_deployment.DIRECTORY
        done = ansible_deployment.take_down(network, work, progress, directory=at)
    _print_changes(done.changed, "removed", as_json=as_json)
    return 0


def _print_changes(changed: dict[str, list[str]], word: str, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(changed))
        return
    for host, tasks in changed.items():
        print(f"{host:20} {word}: {', '.join(tasks)}")
    if not changed:
        print("nothing to do" if word == "removed" else f"nothing {word}")


def _run_locally(file: Path, *, hosts: bool, as_json: bool) -> int:
    import signal

    from crescendo.cli.terminal import Progress
    from crescendo.run.local_deployment import deployed_here
    from crescendo.topology.topology_file import load_topology

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        with Progress() as progress, deployed_here(load_topology(file), progress, hosts=hosts) as deployed:
            if as_json:
                print(json.dumps(deployed.endpoints), flush=True)
            else:
                for node, endpoints in deployed.endpoints.items():
                    print(f"{node:20} {deployed.programs[node]:14} {endpoints['amqp']}", flush=True)
            if deployed.way_in:
                print(f"run clients in this network: {deployed.way_in} COMMAND", file=sys.stderr, flush=True)
            print("the network is up; Ctrl-C stops it", file=sys.stderr, flush=True)
            signal.pause()
    except KeyboardInterrupt:
        return 0
    return 0


def _secret(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").rstrip("\n")
    except (OSError, UnicodeDecodeError) as err:
        raise ConfigError(f"--password-file {path}: cannot be read: {err}") from err


def _schema(network: "Network", given: Path | None) -> "RouterSchema | None":
    """The schema to check the network's routers with; without one, their attributes cannot be checked."""
    from crescendo.topology.render import routers_of
    from crescendo.topology.rendering.routers import schema_for

    routers = routers_of(network)
    found = schema_for(routers, given)
    if found is None and routers:
        print(
            "crescendo: without the router's schema its sections and attributes are not checked; give --schema",
            file=sys.stderr,
        )
    return found


def variables_text(document: dict[str, Any], written_as: VariablesFormat) -> str:
    if written_as is VariablesFormat.json:
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    import yaml

    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, explicit_start=True)


def _network(file: Path, *, quiet: bool = False) -> "Network":
    from crescendo.topology.generate import generate as generate_variables
    from crescendo.topology.topology_file import load_topology

    topology = load_topology(file)
    for node in topology.graph.nodes:
        if not node.known and not quiet:
            print(
                f"crescendo: {node.id} is not in the inventory; others will look for it under its name",
                file=sys.stderr,
            )
    return generate_variables(topology)


def _write(out: Path | None, text: str) -> None:
    if out is None:
        sys.stdout.write(text)
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as err:
        raise ConfigError(f"{out} cannot be written: {err.strerror}") from err


TOPOLOGY_VERBS: dict[str, Callable[..., int]] = {
    "generate": generate,
    "render": render,
    "show": show,
    "deploy": deploy,
    "probe": probe,
    "down": down,
    "template": template,
}
"""In the order of the help."""
