"""How does a form become an experiment, and when can an experiment be shown as a form?

The form has one system, groups of senders and receivers, clients of MLMQ by their kind, phases and the usual checks.
Whatever else an experiment says can be edited as YAML only: the form is not offered, rather than silently dropping a
key. Checks nothing: the experiment's own reader does.
"""

import re
from typing import Any

import yaml
from msgspec import NODEFAULT, Struct, to_builtins
from msgspec.structs import fields, replace
from pydantic import BaseModel, ConfigDict, Field

from crescendo.model.errors import ConfigError
from crescendo.model.experiment import Experiment
from crescendo.model.experiment_file import experiment_from, parse_mapping
from crescendo.model.experiment_parts import Inspect, Phases
from crescendo.model.mlmq_clients import ClientKind
from crescendo.model.units import Duration, format_unit
from crescendo.model.workload import Group

_GROUP_KEYS = {"address", "protocol", "senders", "receivers", "size", "rate", "settle"}
_PLACES = re.compile(r"\s*([A-Za-z0-9_.-]+)\s*(?:[:×x*]\s*(\d{1,5}))?\s*(?:,|$)")
"""A host or label and how many processes it gets, as in `north: 4, south: 2`."""
_CLIENT_GROUPS = {
    "one_way": ("one-way", ClientKind.ONE_WAY),
    "paired": ("paired", ClientKind.PAIRED),
    "consumers": ("consumers", ClientKind.CONSUMER),
    "producers": ("producers", ClientKind.PRODUCER),
}
"""Field -> name and kind of the group of clients whose number it is."""
_PHASE_KEYS = {"warmup", "measure", "drain"}
_CHECK_FIELDS = {
    "rate": "check_rate",
    "response_p99": "check_p99",
    "lost": "check_lost",
    "duplicated": "check_duplicated",
}


class LoadFields(BaseModel):
    """One group of senders and receivers, as text."""

    model_config = ConfigDict(extra="forbid", str_max_length=20_000)

    group: str = ""  # its name; groups are told apart by it
    protocol: str = "mlmq"
    address: str = ""
    senders: str = "2"
    receivers: str = "2"
    size: str = "256"
    rate: str = "250"
    settle: str = "at-least-once"
    client_settings: str = ""


class ExperimentForm(LoadFields):
    """The fields of the form, as text."""

    name: str = ""
    system: str = "mlmq"  # a kind, `url` or `topology`
    url: str = ""
    topology: str = ""
    settings: str = ""
    groups: list[LoadFields] = Field(default_factory=list, max_length=20)  # beside the first one
    sender_processes: str = "1"
    receiver_processes: str = "1"
    one_way: str = ""
    paired: str = ""
    consumers: str = ""
    producers: str = ""
    client_wait: str = "20ms"
    client_processes: str = "1"
    warmup: str = "2s"
    measure: str = "10s"
    drain: str = "10s"
    inspect: list[str] = Field(default_factory=lambda: ["mlmq", "process"], max_length=20)
    inspect_every: str = "1s"
    check_rate: str = ">= 0.95 of offered"
    check_p99: str = "<= 1s"
    check_lost: str = "0"
    check_duplicated: str = "0"


def text_of(form: ExperimentForm) -> str:
    """The experiment file that the form means."""
    document: dict[str, Any] = {"name": form.name.strip()}
    if form.system == "topology":
        document["topology"] = form.topology.strip()
    elif form.system == "url":
        document["system"] = {"url": form.url.strip()}
    else:
        document["system"] = {"kind": form.system}
        if form.settings.strip():
            document["system"]["settings"] = parse_mapping(form.settings, "settings", "brokers")
    clients = _clients(form)
    if not clients or (form.senders.strip(), form.receivers.strip()) != ("0", "0"):
        first = _workload(form, document["name"])
        further = [_workload(one, document["name"], one.group.strip()) for one in form.groups]
        document["workload"] = [first, *further] if further else first
    if clients:
        document["clients"] = clients
    processes = {"senders": _places(form.sender_processes), "receivers": _places(form.receiver_processes)}
    processes |= {"clients": _plain(form.client_processes)} if clients else {}
    if any(count != 1 for count in processes.values()):
        document["peers"] = processes
    document["phases"] = {"warmup": form.warmup, "measure": form.measure, "drain": form.drain}
    if form.inspect:
        every = {"every": form.inspect_every.strip()} if form.inspect_every.strip() else {}
        document["inspect"] = [{"kind": kind} | every for kind in form.inspect]
    checks = {key: _plain(value) for key, field in _CHECK_FIELDS.items() if (value := getattr(form, field).strip())}
    if checks:
        document["checks"] = checks
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=110)


def _workload(form: LoadFields, name: str, own: str = "") -> dict[str, Any]:
    named = form.group.strip()
    group = ({"name": named} if named else {}) | {
        "address": form.address.strip() or _own_queue(name, own), "protocol": form.protocol,
        "senders": _plain(form.senders), "receivers": _plain(form.receivers), "size": _plain(form.size),
        "rate": _plain(form.rate), "settle": form.settle,
    }  # fmt: skip
    more = form.client_settings.strip()
    return group | (parse_mapping(more, "client settings", "client, mode") if more else {})


def _clients(form: ExperimentForm) -> list[dict[str, Any]]:
    """The groups of clients, where the system may be MLMQ; the page hides them elsewhere."""
    if form.system not in {"mlmq", "url"}:
        return []
    counts = {field: _plain(getattr(form, field)) for field in _CLIENT_GROUPS}
    return [
        {"name": name, "kind": kind.value, "count": counts[field], "wait": form.client_wait.strip()}
        for field, (name, kind) in _CLIENT_GROUPS.items()
        if counts[field] not in ("", 0)
    ]


def form_of(text: str) -> ExperimentForm | None:
    """The form that means the same as this text; None if there is none."""
    try:
        document = parse_mapping(text, "experiment", "name")
        form = _form_like(document)
        if form is None or _meaning(document) != _meaning(parse_mapping(text_of(form), "experiment", "name")):
            return None
    except (ConfigError, ValueError):  # also that of pydantic
        return None
    return form


def _meaning(document: dict[str, Any]) -> Experiment:
    """The experiment, with the period of every inspector written out."""
    found = experiment_from(document)
    inspect = [replace(one, every=Duration(one.period_ns)) for one in found.inspect]
    return replace(found, inspect=inspect)


def _form_like(document: dict[str, Any]) -> ExperimentForm | None:
    """The form with what it can show of a document; the caller compares whether that is everything."""
    written = document.get("workload", {})
    group, *further = written if isinstance(written, list) and written else [written]
    system, phases = document.get("system", {}), document.get("phases", {})
    peers, checks = document.get("peers", {}), document.get("checks", {})
    inspect = document.get("inspect", [])
    if not all(isinstance(part, dict) for part in (group, *further, system, phases, peers, checks, *inspect)):
        return None
    clients = document.get("clients", [])
    clients = [clients] if isinstance(clients, dict) else clients
    if clients and "workload" not in document:
        group = {"senders": 0, "receivers": 0}
    counts = _client_counts(clients)
    if counts is None:
        return None
    found = {key: str(value) for key, value in (_defaults(Phases, _PHASE_KEYS) | phases).items() if key in _PHASE_KEYS}
    found |= {field: str(checks.get(key, "")) for key, field in _CHECK_FIELDS.items()}
    name = document.get("name", "")
    settings = system.get("settings")
    return ExperimentForm(
        **found,
        **_load_fields(group, _own_queue(name)),
        groups=[LoadFields(**_load_fields(one, _own_queue(name, one.get("name", "")))) for one in further],
        name=str(name),
        system="topology" if "topology" in document else "url" if "url" in system else str(system.get("kind", "")),
        url=str(system.get("url", "")),
        topology=str(document.get("topology", "")),
        settings="" if not settings else yaml.safe_dump(settings, sort_keys=False),
        sender_processes=_shown_places(peers.get("senders", 1)),
        receiver_processes=_shown_places(peers.get("receivers", 1)),
        **counts,
        client_wait=next((str(one["wait"]) for one in clients if "wait" in one), "0s" if clients else "20ms"),
        client_processes=str(peers.get("clients", 1)),
        inspect=[str(one.get("kind")) for one in inspect],
        inspect_every=_shown_period(inspect),
    )


def _shown_period(inspect: list[dict[str, Any]]) -> str:
    """How often inspectors look; empty if each of them looks as often as it does by itself."""
    asked = [one for one in inspect if "every" in one]
    if all(Duration.parse(one["every"]) == Inspect(kind=str(one.get("kind"))).period_ns for one in asked):
        return "" if inspect else "1s"
    return str(asked[0]["every"])


def _load_fields(group: dict[str, Any], own_queue: str) -> dict[str, str]:
    """The fields that show a group; keys without a field of their own are among the client settings."""
    found = {key: str(value) for key, value in (_defaults(Group, _GROUP_KEYS) | group).items() if key in _GROUP_KEYS}
    if found.get("address") == own_queue:
        found["address"] = ""
    more = {key: value for key, value in group.items() if key not in {*_GROUP_KEYS, "name"}}
    settings = "" if not more else yaml.safe_dump(more, sort_keys=False)
    return found | {"group": str(group.get("name", "")), "client_settings": settings}


def _client_counts(clients: Any) -> dict[str, str] | None:
    """Field -> number of clients; None if a group has no field."""
    fields_of = {(name, str(kind)): field for field, (name, kind) in _CLIENT_GROUPS.items()}
    found = {}
    for one in clients if isinstance(clients, list) else [None]:
        if not isinstance(one, dict) or (named := (str(one.get("name")), str(one.get("kind")))) not in fields_of:
            return None
        found[fields_of[named]] = str(one.get("count", 1))
    return found


def _defaults(kind: type[Struct], names: set[str]) -> dict[str, Any]:
    """What a file means that does not say it."""
    found = {}
    for field in fields(kind):
        if field.encode_name in names and not field.required:
            value = field.default if field.default is not NODEFAULT else field.default_factory()
            plain = to_builtins(value, enc_hook=format_unit)
            found[field.encode_name] = int(plain) if isinstance(plain, float) and plain.is_integer() else plain
    return found


def _own_queue(name: object, group: object = "") -> str:
    """Of the first group, or of another one."""
    return f"queue://{name or 'load'}{f'-{group}' if group else ''}-{{run}}"


def _places(text: str) -> Any:
    """A number of processes, or how many where."""
    plain = _plain(text)
    if not isinstance(plain, str) or _PLACES.sub("", plain):
        return plain  # a number, or a mistake that the reader explains
    return [{"on": on, "count": int(count or 1)} for on, count in _PLACES.findall(plain)]


def _shown_places(value: Any) -> str:
    if not isinstance(value, list):
        return str(value)
    return ", ".join(f"{one.get('on', '')}: {one.get('count', 1)}" for one in value if isinstance(one, dict))


def _plain(text: str) -> Any:
    """A number where one was written."""
    text = text.strip()
    try:
        return int(text)
    except ValueError:
        try:
            return float(text)
        except ValueError:
            return text
