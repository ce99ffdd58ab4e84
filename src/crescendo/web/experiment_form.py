"""How does a form become an experiment, and when can an experiment be shown as a form?

The form has one system, one group of senders and receivers, phases and the usual checks. Whatever else an experiment
says can be edited as YAML only: the form is not offered, rather than silently dropping a key. Checks nothing: the
experiment's own reader does.
"""

from typing import Any

import yaml
from msgspec import NODEFAULT, Struct, to_builtins
from msgspec.structs import fields, replace
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from crescendo.model.errors import ConfigError
from crescendo.model.experiment import Experiment, Phases
from crescendo.model.experiment_file import experiment_from, parse_mapping
from crescendo.model.units import Duration, format_unit
from crescendo.model.workload import Group

_GROUP_KEYS = {"address", "protocol", "senders", "receivers", "size", "rate", "settle"}
_PHASE_KEYS = {"warmup", "measure", "drain"}
_CHECK_FIELDS = {
    "rate": "check_rate",
    "response_p99": "check_p99",
    "lost": "check_lost",
    "duplicated": "check_duplicated",
}


class ExperimentForm(BaseModel):
    """The fields of the form, as text."""

    model_config = ConfigDict(extra="forbid", str_max_length=20_000)

    name: str = ""
    system: str = "mlmq"  # a kind, `url` or `topology`
    url: str = ""
    topology: str = ""
    settings: str = ""
    protocol: str = "mlmq"
    address: str = ""
    senders: str = "2"
    receivers: str = "2"
    size: str = "256"
    rate: str = "250"
    settle: str = "at-least-once"
    sender_processes: str = "1"
    receiver_processes: str = "1"
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
    address = form.address.strip() or _own_queue(document["name"])
    document["workload"] = {
        "address": address, "protocol": form.protocol, "senders": _plain(form.senders),
        "receivers": _plain(form.receivers), "size": _plain(form.size), "rate": _plain(form.rate),
        "settle": form.settle,
    }  # fmt: skip
    processes = {"senders": _plain(form.sender_processes), "receivers": _plain(form.receiver_processes)}
    if processes != {"senders": 1, "receivers": 1}:
        document["peers"] = processes
    document["phases"] = {"warmup": form.warmup, "measure": form.measure, "drain": form.drain}
    if form.inspect:
        document["inspect"] = [{"kind": kind, "every": form.inspect_every} for kind in form.inspect]
    checks = {key: _plain(value) for key, field in _CHECK_FIELDS.items() if (value := getattr(form, field).strip())}
    if checks:
        document["checks"] = checks
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=110)


def form_of(text: str) -> ExperimentForm | None:
    """The form that means the same as this text; None if there is none."""
    try:
        document = parse_mapping(text, "experiment", "name")
        form = _form_like(document)
        if form is None or _meaning(document) != _meaning(parse_mapping(text_of(form), "experiment", "name")):
            return None
    except (ConfigError, ValidationError):
        return None
    return form


def _meaning(document: dict[str, Any]) -> Experiment:
    """The experiment, with the period of every inspector written out."""
    found = experiment_from(document)
    inspect = [replace(one, every=Duration(one.period_ns)) for one in found.inspect]
    return replace(found, inspect=inspect)


def _form_like(document: dict[str, Any]) -> ExperimentForm | None:
    """The form with what it can show of a document; the caller compares whether that is everything."""
    group = document.get("workload", {})
    if isinstance(group, list) and len(group) == 1:
        group = group[0]
    system, phases = document.get("system", {}), document.get("phases", {})
    peers, checks = document.get("peers", {}), document.get("checks", {})
    inspect = document.get("inspect", [])
    if not all(isinstance(part, dict) for part in (group, system, phases, peers, checks, *inspect)):
        return None
    values = _defaults(Group, _GROUP_KEYS) | group | _defaults(Phases, _PHASE_KEYS) | phases
    found = {key: str(value) for key, value in values.items() if key in _GROUP_KEYS | _PHASE_KEYS}
    found |= {field: str(checks.get(key, "")) for key, field in _CHECK_FIELDS.items()}
    if found.get("address") == _own_queue(document.get("name", "")):
        found["address"] = ""
    settings = system.get("settings")
    return ExperimentForm(
        **found,
        name=str(document.get("name", "")),
        system="topology" if "topology" in document else "url" if "url" in system else str(system.get("kind", "")),
        url=str(system.get("url", "")),
        topology=str(document.get("topology", "")),
        settings="" if not settings else yaml.safe_dump(settings, sort_keys=False),
        sender_processes=str(peers.get("senders", 1)),
        receiver_processes=str(peers.get("receivers", 1)),
        inspect=[str(one.get("kind")) for one in inspect],
        inspect_every=next((str(one["every"]) for one in inspect if "every" in one), "1s"),
    )


def _defaults(kind: type[Struct], names: set[str]) -> dict[str, Any]:
    """What a file means that does not say it."""
    found = {}
    for field in fields(kind):
        if field.encode_name in names and not field.required:
            value = field.default if field.default is not NODEFAULT else field.default_factory()
            plain = to_builtins(value, enc_hook=format_unit)
            found[field.encode_name] = int(plain) if isinstance(plain, float) and plain.is_integer() else plain
    return found


def _own_queue(name: object) -> str:
    return f"queue://{name or 'load'}-{{run}}"


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
