"""How are the nodes of a network brought up on other machines?

With Ansible, because its inventory is what the topology file names: find or install the program, take the schema from
the node, generate, render, copy, restart what has changed, and wait until every port listens. A second time nothing
changes; `check` changes nothing at all. If a machine fails, it is named, and what this deployment started on the others
is taken down. Nodes run under start-stop-daemon in a directory of their own, which `take_down` removes with them.
A broker needs more than files, so Crescendo on its machine renders and starts it (`node_program`).
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from crescendo.model.errors import ConfigError, LostError
from crescendo.processes.child import launch_child
from crescendo.processes.die_with_parent import die_with_parent
from crescendo.topology import node_program
from crescendo.topology.generate import Network
from crescendo.topology.graph import BROKER, CLIENT, RABBITMQ, ROUTER, GraphNode
from crescendo.topology.listener_ports import port_of, reached_at
from crescendo.topology.node_order import NodeOrder
from crescendo.topology.node_program import FIND, INSTALL, NODE_FILE
from crescendo.topology.render import DEFAULT_ROUTER, needs_user, node_files
from crescendo.topology.rendered_files import write_files
from crescendo.topology.rendering.access import Access
from crescendo.topology.rendering.rabbitmq import check_password
from crescendo.topology.rendering.relay import RELAY_FILE
from crescendo.topology.rendering.router_schema import read_schema
from crescendo.topology.rendering.routers import FILES, PROGRAMS

_PLAYBOOKS = Path(__file__).parent / "ansible"
_PYTHON, _PROGRAM = "@python@", "@program@"  # of the machine, which only the inventory knows
_SCHEMA_PATHS = ["/usr/lib", "/usr/local/lib", "/usr/share", "/opt"]
_START_TIMEOUT_S = {ROUTER: 20, BROKER: 120}
DIRECTORY = "/var/lib/crescendo-topology"


class Deployed(Struct, frozen=True):
    """What Ansible changed: task names by machine."""

    changed: dict[str, list[str]]


class PlayFailure(ConfigError):
    """A playbook that did not reach its end everywhere, and what it had changed until then."""

    def __init__(self, sentence: str, changed: dict[str, list[str]]) -> None:
        super().__init__(sentence)
        self.changed = changed


@contextlib.contextmanager
def private_directory() -> Iterator[Path]:
    """A directory for the files that are copied, which nobody else can read."""
    with tempfile.TemporaryDirectory(prefix="crescendo-topology-") as work:
        yield Path(work)


def deploy(
    network: Network,
    access: Access,
    work: Path,
    progress: Callable[[str], None],
    *,
    check: bool = False,
    directory: str = DIRECTORY,
) -> Deployed:
    """Bring every node up. `work` is a private directory for the files that are copied."""
    _check_access(network, access)
    variables = _variables(network, work, directory)
    has_schemas = any((node.program or DEFAULT_ROUTER) in FILES for node in _nodes(network))
    look = _play("look.yml", network, variables, work, progress) if has_schemas else {}
    files: dict[str, str] = {}
    for node in _nodes(network):
        if node.type == BROKER:
            order = NodeOrder(network, node.id, access.user, access.password)
            files[f"{node.id}/{NODE_FILE}"] = order.without_others().encoded().decode()
            continue
        fetched = work / "schemas" / f"{node.id}.json"
        schema = read_schema(fetched) if fetched.exists() else None
        at = Access(access.user, access.password, access.role, f"{directory}/{node.id}", access.home)
        files |= {f"{node.id}/{path}": text for path, text in node_files(network, node, at, schema).items()}
    list(write_files(work / "files", files))
    try:
        changed = _play("deploy.yml", network, variables, work, progress, check=check)
    except PlayFailure as failure:
        _stop_started(network, failure.changed, work, progress, directory)
        raise
    return Deployed({host: [*look.get(host, ()), *changed.get(host, ())] for host in look | changed})


def _stop_started(
    network: Network, changed: dict[str, list[str]], work: Path, progress: Callable[[str], None], directory: str
) -> None:
    """Take the nodes down that this deployment has started; those that ran before it stay."""
    variables = _variables(network, work, directory)
    started = {
        machine: [node for node in nodes if f"start {node['id']}" in changed.get(machine, ())]
        for machine, nodes in variables["crescendo_nodes"].items()
    }
    started = {machine: nodes for machine, nodes in started.items() if nodes}
    if started:
        _play("down.yml", network, {**variables, **_machines(started)}, work, progress)


def take_down(network: Network, work: Path, progress: Callable[[str], None], *, directory: str = DIRECTORY) -> Deployed:
    """Stop every node and remove its files."""
    return Deployed(_play("down.yml", network, _variables(network, work, directory), work, progress))


def _nodes(network: Network) -> list[GraphNode]:
    return [node for node in network.graph.nodes if node.type != CLIENT]


def _check_access(network: Network, access: Access) -> None:
    if needs_user(network) and not access.user:
        raise ConfigError("the brokers need a user: give --user and --password-file")
    if any(node.program == RABBITMQ for node in network.graph.nodes):
        check_password(access)


def _variables(network: Network, work: Path, directory: str) -> dict[str, Any]:
    nodes: dict[str, list[dict[str, Any]]] = {}
    for node in _nodes(network):
        if not node.known:
            raise ConfigError(f"{node.id} is not in the inventory {network.topology.inventory}")
        nodes.setdefault(node.machine, []).append(_node(network, node, f"{directory}/{node.id}"))
    return {
        **_machines(nodes),
        "crescendo_work": str(work),
        "crescendo_schema_paths": _SCHEMA_PATHS,
        "crescendo_default_python": sys.executable,
    }


def _machines(nodes: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    return {"crescendo_machines": ",".join(nodes), "crescendo_nodes": nodes}


def _node(network: Network, node: GraphNode, directory: str) -> dict[str, Any]:
    program = node.program or DEFAULT_ROUTER
    schema, default_program, install = "", "", []
    listeners = [
        {"host": reached_at(entry.get("host")), "port": port_of(entry)}
        for entry in network.variables[node.id].get("listener", ())
    ]
    if program in FILES:
        command, schema = PROGRAMS[program]
        argv = [_PROGRAM, "--", "--conf", f"{directory}/{FILES[program]}"]
        probe = ["test", "-x", _PROGRAM]
        default_program = f"/usr/sbin/{command}"
        cure = "install it and name it in the inventory, crescendo_program=…, or its package, crescendo_package=…"
    elif node.type == BROKER:
        runs = [_PYTHON, "-m", node_program.__name__]
        argv = [_PYTHON, "--", *runs[1:], f"{directory}/{NODE_FILE}"]
        probe, install = [*runs, FIND, program], [*runs, INSTALL, program]
        cure = "install Crescendo there, and name its interpreter in the inventory: crescendo_python=…"
    else:
        argv = [_PYTHON, "--", "-m", "crescendo.systems.relay", "--router", f"{directory}/{RELAY_FILE}"]
        probe = [_PYTHON, "-c", "import crescendo.systems.relay"]
        cure = "install Crescendo there, and name its interpreter in the inventory: crescendo_python=…"
    return {
        "id": node.id,
        "program": program,
        "directory": directory,
        "mode": "0711" if node.type == BROKER else "0700",  # a broker has an account of its own below it
        "argv": argv,
        "default_program": default_program,
        "probe": probe,
        "install": install,
        "timeout_s": _START_TIMEOUT_S[node.type],
        "cure": cure,
        "schema": schema,
        "listeners": listeners,
    }


def _play(
    playbook: str,
    network: Network,
    variables: dict[str, Any],
    work: Path,
    progress: Callable[[str], None],
    *,
    check: bool = False,
) -> dict[str, list[str]]:
    """Run one playbook; task names of what it changed, by machine. Every machine that failed is named."""
    if network.topology.inventory is None:
        raise ConfigError("the topology names no hostfile; Ansible needs an inventory of the machines")
    given = work / "variables.json"
    list(write_files(work, {given.name: json.dumps(variables)}))
    argv = [_ansible(), "-i", network.topology.inventory, "-e", f"@{given}", *(["--check"] if check else [])]
    changed: dict[str, list[str]] = {}
    failures: dict[str, str] = {}
    for event in _events([*argv, str(_PLAYBOOKS / playbook)], work):
        host, task = event["host"], event["task"]
        progress(f"{host}: {task}")
        if event["outcome"] == "unreachable":
            failures.setdefault(host, f"{host} cannot be reached: {event['reason']}")
        elif event["outcome"] == "failed":
            failures.setdefault(host, f"{host}: {task}: {event['reason']}")
        elif event["changed"]:
            changed.setdefault(host, []).append(task)
    if failures:
        raise PlayFailure(" ".join("; ".join(failures.values()).split()), changed)
    return changed


def _events(argv: list[str], work: Path) -> Iterator[dict[str, Any]]:
    settings = {
        "ANSIBLE_HOME": str(work / "ansible"),
        "ANSIBLE_CALLBACK_PLUGINS": str(_PLAYBOOKS / "callbacks"),
        "ANSIBLE_STDOUT_CALLBACK": "crescendo_events",
        "ANSIBLE_ROLES_PATH": str(_PLAYBOOKS / "roles"),
        "ANSIBLE_SSH_ARGS": "-o ControlMaster=no",  # otherwise a connection stays open for a minute
        "ANSIBLE_DEPRECATION_WARNINGS": "0",
        "ANSIBLE_LOCALHOST_WARNING": "0",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_PIPELINING": "1",
        "ANSIBLE_PYTHON_INTERPRETER": "auto_silent",
    }
    with (
        (work / "ansible.log").open("ab") as log,
        launch_child(
            argv,
            on_fork=die_with_parent(),
            env=os.environ | settings,
            stdout=subprocess.PIPE,
            stderr=log.fileno(),
        ) as child,
    ):
        try:
            for line in child.stdout or ():
                if line.startswith(b"{"):
                    yield json.loads(line)
            code = child.wait()
        finally:
            if child.poll() is None:
                child.terminate()
    # 2: a task failed, 4: a machine cannot be reached; both have been said.
    if code not in {0, 2, 4}:
        lines = (work / "ansible.log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise LostError(f"ansible-playbook ended with code {code}: {' '.join(lines[-3:])}")


def _ansible() -> str:
    beside = Path(sys.executable).with_name("ansible-playbook")
    found = str(beside) if beside.exists() else shutil.which("ansible-playbook")
    if found is None:
        raise ConfigError("ansible-playbook was not found; run: python -m pip install 'crescendo-lab[deploy]'")
    return found
