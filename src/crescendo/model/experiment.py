"""What experiment does this file describe?

One YAML file becomes one frozen value. Every mistake a user can make is rejected here, with the file, the path in the
file and what would be right; later stages need not check again. Reads files, starts nothing.
"""

import copy
import difflib
import re
from collections.abc import Hashable
from pathlib import Path
from typing import Annotated, Any, get_args
from urllib.parse import parse_qsl, urlsplit

import msgspec
import yaml
from msgspec import Meta, Struct, field

from crescendo.model.address import PORTS, SCHEMES, TLS_OPTIONS
from crescendo.model.errors import ConfigError
from crescendo.model.metrics import STOP_METRICS
from crescendo.model.mlmq_clients import MIN_DRAIN, SCHEME, URL_OPTIONS, Clients, check_clients
from crescendo.model.pacer import Pacer
from crescendo.model.profile import ConstantProfile, Profile, Step
from crescendo.model.search import MIN_SECONDS, Search
from crescendo.model.units import Duration, Extent, format_unit, parse_unit
from crescendo.model.verdict import Bound, check_bound, check_metric, client_checks, default_checks
from crescendo.model.workload import MAX_CONNECTIONS, PROTOCOLS, Group, Mode

PROCESS = "process"
VIRTUAL_HOSTS = ("amqp091", "amqp091s", "stomp", "stomp+ssl")  # schemes whose URLs may end with a virtual host
MIN_EVERY_NS = 100_000_000
_SECRET = re.compile(r"password|passwd|secret|token|credential", re.IGNORECASE)
_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"


class System(Struct, frozen=True, forbid_unknown_fields=True):
    """The system under test: a kind that Crescendo starts, or the URL of one that is already running."""

    kind: str | None = None
    url: str | None = None
    version: str | None = None  # None: the installed one
    home: str | None = None  # directory of an installation that Crescendo did not make
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.kind is None) == (self.url is None):
            raise ValueError("give either kind (a system to start) or url (one that is already running)")
        if self.url is not None:
            _check_url(self.url)
            given = [key for key in ("version", "home", "settings") if getattr(self, key)]
            if given:
                raise ValueError(f"{given[0]} has no effect with url; it is for a system that Crescendo starts")


class Inspect(Struct, frozen=True, forbid_unknown_fields=True):
    """An inspector: its kind, its period, and its target unless that is the experiment's own system."""

    kind: str
    every: Duration | None = None
    url: str | None = None
    pid: Annotated[int, Meta(ge=1)] | None = None

    def __post_init__(self) -> None:
        if self.every is not None and self.every < MIN_EVERY_NS:
            raise ValueError(f"every must be at least {Duration(MIN_EVERY_NS)}; polling more often would add load")
        if self.pid is not None and self.kind != PROCESS:
            raise ValueError(f"pid needs kind: {PROCESS}; kind: {self.kind} needs a url")
        if self.url is not None and self.kind == PROCESS:
            raise ValueError("a process inspector needs a pid on this machine, not a url")

    @property
    def period_ns(self) -> int:
        return int(self.every or 0) or (10**9 if self.kind == PROCESS else 5 * 10**9)


class Phases(Struct, frozen=True, forbid_unknown_fields=True):
    """Warm-up is not judged; measure is; drain limits how long the last messages may take to arrive."""

    warmup: Duration = Duration(2 * 10**9)
    measure: Extent = Extent("10s")
    drain: Duration = Duration(10 * 10**9)

    def __post_init__(self) -> None:
        if self.measure.duration is not None and self.measure.duration <= 0:
            raise ValueError("measure must be longer than 0; write a duration such as 30s, or a count")


class Peers(Struct, frozen=True, forbid_unknown_fields=True):
    """How many processes share the connections of each role."""

    senders: Annotated[int, Meta(ge=1, le=1000)] = 1
    receivers: Annotated[int, Meta(ge=1, le=1000)] = 1
    clients: Annotated[int, Meta(ge=1, le=1000)] = 1


class Experiment(Struct, frozen=True, forbid_unknown_fields=True):
    """One experiment. The same value and seed give the same schedule."""

    name: Annotated[str, Meta(pattern=_NAME)]
    workload: list[Group] = field(default_factory=list)
    clients: list[Clients] = field(default_factory=list)  # MLMQ's own workloads, beside the load or instead of it
    system: System = System(kind="loopback")
    profile: Profile = ConstantProfile()
    phases: Phases = Phases()
    inspect: list[Inspect] = field(default_factory=list)
    checks: dict[str, Bound] | None = None
    peers: Peers = Peers()
    seed: int = 1
    stop_when: dict[str, Duration] = field(default_factory=dict)  # a latency at which the whole run stops
    search: Search | None = None

    def __post_init__(self) -> None:
        names = [group.name for group in self.workload] + [group.name for group in self.clients]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise ValueError(f"two groups are called {sorted(twice)[0]!r}; give each group its own name")
        senders = sum(group.senders for group in self.workload)
        receivers = sum(group.receivers for group in self.workload)
        if not self.workload and not self.clients:
            raise ValueError("workload: the list must have length >= 1, unless there are clients")
        if senders == 0 and not self.clients:
            raise ValueError("no group has a sender, so there would be nothing to measure")
        if max(senders, receivers) + sum(group.count for group in self.clients) > MAX_CONNECTIONS:
            raise ValueError(f"a run has at most {MAX_CONNECTIONS} senders and {MAX_CONNECTIONS} receivers")
        received = {address for group in self.workload for address in group.shared_addresses("receiver")}
        sent = {address for group in self.workload for address in group.shared_addresses("sender")}
        if no_receiver := sorted(sent - received):
            raise ValueError(f"no receiver on {no_receiver[0]}; give a group on that address a receiver")
        if no_sender := sorted(received - sent):
            raise ValueError(f"no sender on {no_sender[0]}; give a group on that address a sender")
        for group in self.workload:
            self.pacer_of(group, 0)  # rejects what cannot be paced
            self._check_protocol(group)
        for inspect in self.inspect:
            self._check_target(inspect)
        for metric, bound in (self.checks or {}).items():
            check_metric(metric, has_clients=bool(self.clients))
            check_bound(metric, bound)
        for metric, limit in self.stop_when.items():
            if metric not in STOP_METRICS or limit <= 0:
                raise ValueError(
                    f"stop_when: {metric!r}: write one of {', '.join(STOP_METRICS)} with a duration above 0"
                )
        if self.search is not None:
            self._check_search(self.search)
        if self.clients:
            self._check_clients()

    def _check_clients(self) -> None:
        check_clients(self.clients, self.peers.clients)
        if self.system.kind != SCHEME and not (self.system.url or "").startswith(f"{SCHEME}://"):
            raise ValueError(f"clients need MLMQ; set system to kind: {SCHEME}, or to a url with {SCHEME}://")
        if self.phases.measure.duration is None:
            raise ValueError("clients run until their time is over; make phases.measure a duration")
        if self.phases.drain < MIN_DRAIN:
            raise ValueError(f"clients need time to finish their last messages; make phases.drain at least {MIN_DRAIN}")
        alone = {"stop_when": self.stop_when, "profile": not isinstance(self.profile, ConstantProfile)}
        for key, given in {"search": self.search, **({} if self.workload else alone)}.items():
            if given:
                raise ValueError(f"{key} applies to rates and receivers, and clients have neither; remove it")

    def _check_search(self, search: Search) -> None:
        if self.checks is not None:
            raise ValueError("search: a search judges search.limits; move the checks there")
        if not isinstance(self.profile, ConstantProfile):
            raise ValueError("search: each try runs at one constant rate; remove profile")
        if not all(group.rate for group in self.workload if group.senders):
            raise ValueError("search scales the groups' rates, and 0 (unbounded) cannot be scaled; give a rate")
        duration = self.phases.measure.duration
        if search.wants_steady and (duration is None or duration < (MIN_SECONDS + 1) * 10**9):
            least = f"a duration of {MIN_SECONDS + 1}s or more"
            raise ValueError(f"search: to detect a growing backlog, phases.measure must be {least}")

    def _check_protocol(self, group: Group) -> None:
        scheme = urlsplit(self.system.url).scheme if self.system.url else PROTOCOLS[group.protocol]
        if SCHEMES[scheme] != group.protocol and group.needs_system:
            raise ValueError(
                f"group {group.name!r} uses {group.protocol}, but the system's url begins with {scheme}://; "
                f"set its protocol to {SCHEMES[scheme]}, or change the url"
            )

    def _check_target(self, inspect: Inspect) -> None:
        if inspect.url is not None or inspect.pid is not None:
            return
        if self.system.url is not None:
            needed = "pid" if inspect.kind == PROCESS else "url (of its management interface)"
            raise ValueError(f"inspect: {inspect.kind} needs a {needed}, because Crescendo does not start the system")
        if inspect.kind not in {PROCESS, self.system.kind}:
            raise ValueError(
                f"inspect: {inspect.kind} does not fit the system {self.system.kind}; give it the url to inspect"
            )

    def pacer_of(self, group: Group, sender: int) -> Pacer:
        """When the messages of one sending connection are due."""
        return self.profile.pacer(group.rate, self.seed, sender)

    @property
    def effective_checks(self) -> dict[str, Bound]:
        """The checks of the file, or the defaults that any sound run should pass."""
        if self.clients:
            return client_checks(self.checks or {})
        if self.checks is not None:
            return self.checks
        return default_checks(bounded=all(group.rate for group in self.workload if group.senders))

    def redacted(self) -> "Experiment":
        """The same experiment without secrets, for everything that is written or shown."""
        system = self.system
        url = system.url and redact_url(system.url)
        settings = {key: "***" if _SECRET.search(key) else value for key, value in system.settings.items()}
        return msgspec.structs.replace(
            self,
            system=msgspec.structs.replace(system, url=url, settings=settings),
            inspect=[msgspec.structs.replace(item, url=item.url and redact_url(item.url)) for item in self.inspect],
            workload=[
                msgspec.structs.replace(
                    group,
                    address=redact_url_text(group.address),
                    failover=None if group.failover is None else [redact_url_text(text) for text in group.failover],
                )
                for group in self.workload
            ],
        )


class _Loader(yaml.SafeLoader):
    """Rejects duplicate keys, where other loaders silently keep the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        written = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for at, (key, _) in enumerate(node.value):
            if isinstance(key, yaml.ScalarNode) and key.value in written[:at]:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} appears twice", key.start_mark
                )
        return super().construct_mapping(node, deep)


def load_experiment(path: Path, overrides: tuple[str, ...] = ()) -> Experiment:
    """Read one experiment file, with `--set path=value` applied before anything is checked."""
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), _Loader)  # noqa: S506 - a subclass of SafeLoader
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as err:
        raise ConfigError(f"{path}: cannot be read: {err}") from err
    except yaml.YAMLError as err:
        raise ConfigError(f"{path}: this is not YAML: {_one_line(err)}") from err
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: expected a mapping with keys such as name, workload and phases")
    return experiment_from(document, overrides, source=str(path), default_name=path.stem)


def experiment_from(
    document: dict[str, Any], overrides: tuple[str, ...] = (), *, source: str = "experiment", default_name: str = ""
) -> Experiment:
    """Build an experiment from the content of a file."""
    document = copy.deepcopy({"name": default_name, "workload": [] if "clients" in document else {}, **document})
    _list_groups(document)
    for override in overrides:
        _apply_override(document, override)
        _list_groups(document)
    try:
        return msgspec.convert(document, Experiment, dec_hook=parse_unit)
    except msgspec.ValidationError as err:
        raise ConfigError(f"{source}: {_explain(str(err))}") from err


def _list_groups(document: dict[str, Any]) -> None:
    """One group may be written without the list around it, and a list of addresses means failover."""
    for key in ("workload", "clients"):
        if isinstance(document.get(key), dict):
            document[key] = [document[key]]
    for group in document["workload"] if isinstance(document["workload"], list) else ():
        if isinstance(group, dict) and isinstance(group.get("address"), list) and group["address"]:
            group["address"], group["failover"] = group["address"][0], group["address"][1:]


def to_document(experiment: Experiment) -> dict[str, Any]:
    """The experiment as plain values; `experiment_from` turns them back into an equal experiment."""
    document: dict[str, Any] = msgspec.to_builtins(experiment, enc_hook=format_unit)
    if document["checks"] is None:
        del document["checks"]
    return document


def redact_url(url: str) -> str:
    """A URL without its password."""
    parts = urlsplit(url)
    if parts.password is None:
        return url
    return url.replace(f":{parts.password}@", ":***@", 1)


def _check_url(url: str) -> None:
    wanted = "amqp://[user:password@]host[:port] (or amqps, amqp091, amqp091s, stomp, stomp+ssl, mqtt, mqtts, mlmq)"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:  # its message may contain part of the password
        raise ValueError(f"url {redact_url_text(url)!r} should read {wanted}") from None
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    known = parts.scheme in PORTS and set(options) <= set(URL_OPTIONS.get(parts.scheme, TLS_OPTIONS))
    if not known or not parts.hostname or port == 0:
        raise ValueError(f"url {redact_url_text(url)!r} should read {wanted}")
    if parts.path.strip("/") and parts.scheme not in VIRTUAL_HOSTS:
        raise ValueError(
            f"url {redact_url_text(url)!r} has a path; only {', '.join(VIRTUAL_HOSTS)} have virtual hosts; name the "
            "queue or topic in the address of a workload"
        )


def redact_url_text(url: str) -> str:
    """Redaction for text that may not be a valid URL."""
    return re.sub(r"(://[^:@]*:).*@", r"\1***@", url)


def _apply_override(document: dict[str, Any], override: str) -> None:
    path, equals, text = override.partition("=")
    if not equals or not path:
        raise ConfigError(f"--set {override}: write it as path=value, for example --set workload.rate=5000")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as err:
        raise ConfigError(f"--set {override}: the value is not YAML: {_one_line(err)}") from err
    keys = path.split(".")
    targets: list[Any] = [document]
    if keys[0] in {"workload", "clients"} and len(keys) > 1:
        groups = document.get(keys[0])
        targets = groups if isinstance(groups, list) else []
        keys = keys[1:]
        named = [group for group in targets if isinstance(group, dict) and group.get("name", "main") == keys[0]]
        if named and len(keys) > 1:
            targets, keys = named, keys[1:]
    for target in targets:
        inner: Any = target
        for key in keys[:-1]:
            inner = inner.setdefault(key, {}) if isinstance(inner, dict) else None
        if not isinstance(inner, dict):
            raise ConfigError(f"--set {override}: {path} does not lead into a mapping")
        inner[keys[-1]] = value


def _explain(message: str) -> str:
    """msgspec's message, with the path first and the closest known key where one was misspelt."""
    text, _, where = message.partition(" - at `$")
    where = where.rstrip("`").lstrip(".") or "top level"
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`", text)
    if unknown:
        known = _keys_at(where)
        close = difflib.get_close_matches(unknown[1], known, n=1, cutoff=0.6)
        hint = f"did you mean {close[0]!r}?" if close else f"known keys: {', '.join(known)}"
        return f"{where}: unknown key {unknown[1]!r}; {hint}"
    missing = re.fullmatch(r"Object missing required field `(.*)`", text)
    if missing:
        return f"{where}: {missing[1]!r} is missing"
    wrong = re.fullmatch(r"Invalid value '(.*)'", text)
    if wrong and (known := _kinds_at(where)):
        close = difflib.get_close_matches(wrong[1], known, n=1, cutoff=0.6)
        hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
        return f"{where}: {wrong[1]!r} is not a valid value; {hint}"
    return f"{where}: {text[:1].lower()}{text[1:]}"


def _kinds_at(where: str) -> list[str]:
    """The values of a key that selects the kind of a mapping."""
    kinds: Any = Profile if where == "profile.kind" else Mode if where.endswith(".mode.kind") else ()
    return [str(kind.__struct_config__.tag) for kind in get_args(kinds)]


def _keys_at(where: str) -> list[str]:
    head = re.split(r"[.\[]", where)[0]
    tables: dict[str, Any] = {
        "system": System,
        "phases": Phases,
        "peers": Peers,
        "profile": Profile,
        "inspect": Inspect,
        "search": Search,
        "clients": Clients,
    }
    if head == "workload":
        kind: Any = Mode if where.endswith(".mode") else Group
    else:
        kind = Step if where.startswith("profile.steps") else tables.get(head, Experiment)
    names = (item.encode_name for one in get_args(kind) or (kind,) for item in msgspec.structs.fields(one))
    return list(dict.fromkeys(names))


def _one_line(err: Exception) -> str:
    return " ".join(str(err).split())
