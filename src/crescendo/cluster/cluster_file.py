"""Which machines take part, how is each reached, and which peers does each run?

From an Ansible inventory: hosts of the groups senders, receivers, inspectors and agents, or of their children, run
peers of that role; the host of the group control runs the control broker. Groups become labels, and variables that
begin with ansible_ say how ssh reaches a host. Or from a cluster file, which names the inventory, the control broker,
the token, and commands that run before and after. Connects to nothing.
"""

import hashlib
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from crescendo.agent.configuration import read_configuration
from crescendo.model.document_errors import explain
from crescendo.model.errors import ConfigError
from crescendo.model.protocols import default_port
from crescendo.topology.inventory import Inventory, InventoryHost, read_inventory
from crescendo.topology.yaml_file import read_mapping

ROLES = {"senders": "sender", "receivers": "receiver", "inspectors": "inspector", "agents": "agent"}
"""Group of the inventory -> role of its peers."""

CONTROL = "control"
"""The group whose only host runs the control broker, and the role of that process."""

CONTROL_PORT = default_port("mqtts")

DEFAULT_DIRECTORY = "~/.crescendo/cluster"
MAX_PEERS_PER_HOST = 64
_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]*")
_NOT_LABELS = {"all", "ungrouped", CONTROL, *ROLES}

Hook = Annotated[list[str], Meta(min_length=1)]


class ClusterFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A cluster as a person writes it; paths are relative to the file. A command is a list of arguments."""

    inventory: str
    control_file: str | None = None  # holds the URL of the control broker
    token_file: str | None = None
    provision: Hook | None = None  # before `up`: start the machines; may write the inventory
    release: Hook | None = None  # before the installation: build the version that is to be tested
    deprovision: Hook | None = None  # after `down`
    wheelhouse: str | None = None  # wheels to install, instead of those of this installation


@dataclass(frozen=True)
class PeerOnHost:
    """One peer that a host runs."""

    id: str
    role: str
    labels: tuple[str, ...]
    settings: str = ""  # the contents of a file that only it is given


@dataclass(frozen=True)
class ClusterHost:
    """One machine: how it is reached, and what it runs."""

    name: str
    ssh: tuple[str, ...]  # options and destination; empty: this machine, without ssh
    python: str  # of the host
    installed: str  # a Python there that has Crescendo already; empty: install it
    directory: str
    listen: str
    peers: tuple[PeerOnHost, ...]
    control: "ControlPlace | None" = None  # where its control broker is reached, if it has one


@dataclass(frozen=True)
class ControlPlace:
    """Where the control broker of a cluster listens, and under which address others know it."""

    id: str
    address: str
    port: int


@dataclass(frozen=True)
class ClusterPlan:
    """Where everything is; hosts are read later, because `provision` may write the inventory."""

    source: Path
    inventory: Path
    control_file: Path | None = None
    token_file: Path | None = None
    provision: tuple[str, ...] = ()
    release: tuple[str, ...] = ()
    deprovision: tuple[str, ...] = ()
    wheelhouse: Path | None = None


def read_plan(path: Path) -> ClusterPlan:
    """A cluster file, which is a YAML file with the key `inventory`, or an inventory."""
    if path.suffix in {".yml", ".yaml"}:
        document = read_mapping(path, "inventory, or groups of hosts")
        if isinstance(document.get("inventory"), str):
            return _plan(path, document)
    return ClusterPlan(path, path)


def _plan(path: Path, document: dict[str, Any]) -> ClusterPlan:
    try:
        given = msgspec.convert(document, ClusterFile)
    except msgspec.ValidationError as err:
        raise ConfigError(f"{path}: {explain(str(err), document, ClusterFile)}") from err

    def located(name: str | None) -> Path | None:
        return None if name is None else path.parent / name

    return ClusterPlan(
        path,
        path.parent / given.inventory,
        located(given.control_file),
        located(given.token_file),
        tuple(given.provision or ()),
        tuple(given.release or ()),
        tuple(given.deprovision or ()),
        located(given.wheelhouse),
    )


def read_hosts(path: Path, lab: str) -> list[ClusterHost]:
    """The hosts that run peers. Two labs have different directories on the same host."""
    inventory = read_inventory(path)
    hosts = [_host(inventory, one, path, lab) for one in inventory.hosts.values()]
    if not any(host.peers for host in hosts):
        raise ConfigError(f"{path}: no host is in one of the groups {', '.join(ROLES)}, so there would be no peers")
    brokers = [host.name for host in hosts if host.control]
    if len(brokers) > 1:
        raise ConfigError(f"{path}: {', '.join(brokers)} are in the group {CONTROL}; a cluster has one control broker")
    return [host for host in hosts if host.peers or host.control]


def _host(inventory: Inventory, host: InventoryHost, source: Path, lab: str) -> ClusterHost:
    variables = host.variables
    where = f"{source}: {host.name}"
    if not _SAFE.fullmatch(host.name) or not _SAFE.fullmatch(host.address):
        raise ConfigError(f"{where}: host names and addresses consist of letters, digits, dots and hyphens")
    base = str(variables.get("crescendo_directory", DEFAULT_DIRECTORY)).rstrip("/")
    return ClusterHost(
        name=host.name,
        ssh=() if variables.get("ansible_connection") == "local" else _ssh(host, where),
        python=str(variables.get("ansible_python_interpreter", "python3")),
        installed=str(variables.get("crescendo_python", "")),
        directory=f"{base}/{lab}/{host.name}",
        listen=str(variables.get("crescendo_listen", "")),
        peers=tuple(_peers(inventory, host, where, source.parent)),
        control=_control(host, where) if host.name in inventory.group(CONTROL) else None,
    )


def _ssh(host: InventoryHost, where: str) -> tuple[str, ...]:
    """Options and destination. What Ansible would ask for a password is refused: keys and agents only."""
    variables = host.variables
    if refused := sorted({"ansible_password", "ansible_ssh_pass"} & variables.keys()):
        raise ConfigError(f"{where}: {refused[0]}: ssh is given keys or an agent, not passwords; remove it")
    options: list[str] = []
    for key, option in (
        ("ansible_port", "-p"),
        ("ansible_ssh_port", "-p"),
        ("ansible_user", "-l"),
        ("ansible_ssh_user", "-l"),
        ("ansible_ssh_private_key_file", "-i"),
    ):
        if variables.get(key):
            options += [option, str(variables[key])]
    for key in ("ansible_ssh_common_args", "ansible_ssh_extra_args"):
        try:
            options += shlex.split(str(variables.get(key, "")))
        except ValueError as err:
            raise ConfigError(f"{where}: {key}: {err}") from err
    return (*options, "--", host.address)


def _control(host: InventoryHost, where: str) -> ControlPlace:
    port = str(host.variables.get("crescendo_control_port", CONTROL_PORT))
    if not port.isdecimal() or not 0 < int(port) < 2**16:
        raise ConfigError(f"{where}: crescendo_control_port must be a TCP port, 1 to 65535")
    return ControlPlace(f"{CONTROL}-{host.name}", host.address, int(port))


def _peers(inventory: Inventory, host: InventoryHost, where: str, directory: Path) -> list[PeerOnHost]:
    given = host.variables.get("crescendo_labels", [])
    words = given if isinstance(given, list) else str(given).replace(",", " ").split()
    labels = tuple(sorted({*(host.groups - _NOT_LABELS), *map(str, words)}))
    found = []
    for group, role in ROLES.items():
        count = _count(host.variables.get(f"crescendo_{group}", int(host.name in inventory.group(group))), where, group)
        for number in range(count):
            name = host.name if host.name.startswith(f"{role}-") else f"{role}-{host.name}"
            settings = _agent_settings(host, where, directory) if role == "agent" else ""
            found.append(PeerOnHost(f"{name}-{number + 1}" if number else name, role, labels, settings))
    return found


def _agent_settings(host: InventoryHost, where: str, directory: Path) -> str:
    """What an agent may run, as its host will have it; read here once to reject mistakes."""
    given = host.variables.get("crescendo_agent_config")
    if not given:
        raise ConfigError(
            f"{where}: an agent needs crescendo_agent_config: a file beside the inventory that says what it may run"
        )
    read_configuration(directory / str(given))
    return (directory / str(given)).read_text(encoding="utf-8")


def _count(given: Any, where: str, group: str) -> int:
    text = str(given)
    if not text.isdecimal() or int(text) > MAX_PEERS_PER_HOST:
        raise ConfigError(f"{where}: crescendo_{group} must be a number of processes, 0 to {MAX_PEERS_PER_HOST}")
    return int(text)


def digest_of(*parts: object) -> str:
    """Equal for peers that need not be started again."""
    return hashlib.sha256(msgspec.json.encode([str(part) for part in parts])).hexdigest()[:16]
