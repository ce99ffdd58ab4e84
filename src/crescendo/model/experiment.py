"""What is an experiment?

Frozen values, and the rules that they follow together: whatever cannot be run, or would measure something other than
what was asked for, is rejected here, so that later stages need not check again. `experiment_file.py` reads them from a
file. Starts nothing.
"""

from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from crescendo.model.address import address_of
from crescendo.model.agents import Agent, check_agents
from crescendo.model.fault_schedule import check_faults
from crescendo.model.group_places import KEYS as PLACE_KEYS
from crescendo.model.group_places import check_place, place_urls, with_place_urls
from crescendo.model.lab_network import LabSettings
from crescendo.model.metrics import STOP_METRICS, split_metric
from crescendo.model.mlmq_clients import MIN_DRAIN, Clients, check_clients
from crescendo.model.name_patterns import NAME_PATTERN
from crescendo.model.pacer import Pacer
from crescendo.model.planned_faults import PlannedFault
from crescendo.model.profile import ConstantProfile, Profile
from crescendo.model.protocols import MLMQ, protocol_of_scheme
from crescendo.model.redaction import redact_address, redact_place, redact_value
from crescendo.model.search import MIN_SECONDS, Search
from crescendo.model.slices import slice_names
from crescendo.model.suggestions import choice
from crescendo.model.system_url import check_system_url
from crescendo.model.units import Duration, Extent
from crescendo.model.urls import parse_url, redact_url
from crescendo.model.verdict import Bound, check_bound, check_metric, client_checks, default_checks
from crescendo.model.workload import MAX_CONNECTIONS, RUN, Group

PROCESS = "process"
_DRAIN_FACTOR = 4
MIN_EVERY_NS = 100_000_000
MAX_SCHEDULE_SEGMENTS = 5_000_000
"""Steps of a profile, times the senders that follow it: more would take minutes to compute."""


class System(Struct, frozen=True, forbid_unknown_fields=True):
    """The system under test: a kind that Crescendo starts, or the URL of one that is already running."""

    kind: str | None = None
    url: str | None = None
    version: str | None = None  # None: the installed one
    home: str | None = None  # directory of an installation that Crescendo did not make
    settings: dict[str, Any] = field(default_factory=dict)
    fresh: bool = False  # a fresh installation for this run

    def __post_init__(self) -> None:
        if self.fresh and self.home is not None:
            raise ValueError("fresh: a run does not install what home names; leave one of them out")
        if (self.kind is None) == (self.url is None):
            raise ValueError("give either kind (a system to start) or url (one that is already running)")
        if self.url is not None:
            check_system_url(self.url)
            given = [key for key in ("version", "home", "settings", "fresh") if getattr(self, key)]
            if given:
                raise ValueError(f"{given[0]} has no effect with url; it is for a system that Crescendo starts")


class Inspect(Struct, frozen=True, forbid_unknown_fields=True):
    """An inspector: its kind, its period, and its target unless that is the experiment's own system."""

    kind: str
    every: Duration | None = None
    url: str | None = None
    pid: Annotated[int, Meta(ge=1)] | None = None
    on: Annotated[str, Meta(min_length=1, max_length=200)] | None = None  # a standing inspector, by host, name or label

    def __post_init__(self) -> None:
        if self.every is not None and self.every < MIN_EVERY_NS:
            raise ValueError(f"every must be at least {Duration(MIN_EVERY_NS)}; polling more often would add load")
        if self.pid is not None and self.kind != PROCESS:
            raise ValueError(f"pid needs kind: {PROCESS}; kind: {self.kind} needs a url")
        if self.url is not None and self.kind == PROCESS:
            raise ValueError("a process inspector needs a pid on this machine, not a url")
        if self.on is not None and not self.has_target:
            raise ValueError(f"on: {self.on}: an inspector elsewhere needs its target: a url, or a pid of that host")

    @property
    def has_target(self) -> bool:
        """Whether it says itself what to inspect."""
        return self.url is not None or self.pid is not None

    @property
    def period_ns(self) -> int:
        return int(self.every or 0) or (10**9 if self.kind == PROCESS else 5 * 10**9)


MAX_PROBES = 1_000_000


class Phases(Struct, frozen=True, forbid_unknown_fields=True):
    """Warm-up is not judged; measure is; drain limits how long the last messages may take to arrive."""

    warmup: Duration = Duration(2 * 10**9)
    measure: Extent = Extent("10s")
    drain: Duration = Duration(10 * 10**9)
    drain_limit: Duration | None = None  # None: four times the drain

    def __post_init__(self) -> None:
        if self.measure.duration is not None and self.measure.duration <= 0:
            raise ValueError("measure must be longer than 0; write a duration such as 30s, or a count")
        if self.drain_limit is not None and self.drain_limit < self.drain:
            raise ValueError(f"drain_limit must be at least as long as drain, which is {self.drain}")

    @property
    def drain_limit_ns(self) -> int:
        """How long the drain may last while messages arrive."""
        return int(_DRAIN_FACTOR * self.drain if self.drain_limit is None else self.drain_limit)


_ProcessCount = Annotated[int, Meta(ge=1, le=1000)]


class PeerPlace(Struct, frozen=True, forbid_unknown_fields=True):
    """Some standing peers of one host, or with one name or label."""

    on: Annotated[str, Meta(min_length=1, max_length=100)]
    count: _ProcessCount = 1


class Peers(Struct, frozen=True, forbid_unknown_fields=True):
    """How many processes share the connections of each role, or how many where."""

    senders: _ProcessCount | Annotated[list[PeerPlace], Meta(min_length=1, max_length=1000)] = 1
    receivers: _ProcessCount | Annotated[list[PeerPlace], Meta(min_length=1, max_length=1000)] = 1
    clients: _ProcessCount = 1

    def places(self, role: str) -> list[str]:
        """Where each process of senders or receivers runs; empty for anywhere."""
        wanted = self.senders if role == "sender" else self.receivers
        return [""] * wanted if isinstance(wanted, int) else [place.on for place in wanted for _ in range(place.count)]

    def count(self, role: str) -> int:
        return len(self.places(role))


class Experiment(Struct, frozen=True, forbid_unknown_fields=True):
    """One experiment. The same value and seed give the same schedule."""

    name: Annotated[str, Meta(pattern=NAME_PATTERN)]
    workload: list[Group] = field(default_factory=list)
    clients: list[Clients] = field(default_factory=list)  # MLMQ's own workloads, beside the load or instead of it
    system: System = System(kind="loopback")
    profile: Profile = ConstantProfile()
    phases: Phases = Phases()
    inspect: list[Inspect] = field(default_factory=list)
    checks: dict[str, Bound] | None = None
    peers: Peers = Peers()
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 1
    stop_when: dict[str, Duration] = field(default_factory=dict)  # a latency at which the whole run stops
    search: Search | None = None
    accept_drift: bool = False  # of rate, latency or backlog while they are measured
    topology: str | None = None  # the file of a network that is the system
    probe_links: Annotated[int, Meta(ge=0, le=MAX_PROBES)] = 0  # messages that are compared one by one before the load
    agents: list[Agent] = field(default_factory=list)
    lab: LabSettings | None = None  # hosts on this machine, for the system and the peers
    faults: list[PlannedFault] = field(default_factory=list)

    def __post_init__(self) -> None:
        for check in _RULES:
            check(self)

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

    def for_run(self, run: str) -> "Experiment":
        """This experiment as one run carries it out; `run` replaces {run} in addresses, in checks too."""
        checks = self.checks and {metric.replace(RUN, run): bound for metric, bound in self.checks.items()}
        return msgspec.structs.replace(self, workload=[group.for_run(run) for group in self.workload], checks=checks)

    @property
    def foreign_groups(self) -> frozenset[str]:
        """The groups whose destinations others may have used: on a system that was running, under a fixed name."""
        return frozenset(
            group.name
            for group in self.workload
            if (self.system.url is not None or group.target.url is not None or self.located_urls(group))
            and not group.is_unique
        )

    def located_urls(self, group: Group) -> dict[str, str]:
        """Role -> the URL that `send_to` or `receive_from` names, where that is not a node of a network."""
        if self.topology is not None:
            return {}
        return place_urls(group, self.system.url)

    def with_places_as_urls(self) -> "Experiment":
        """The same experiment, whose groups name no host that only means something beside the system's URL."""

        if self.topology is not None:
            return self
        workload = [
            msgspec.structs.replace(group, **with_place_urls(group, self.system.url)) for group in self.workload
        ]
        return msgspec.structs.replace(self, workload=workload)

    def uses_system(self, group: Group) -> bool:
        """Whether a connection of this group relies on the experiment to name the system."""
        located = self.located_urls(group)
        return group.needs_system and any(
            group.connections_of(role) and role not in located for role in ("sender", "receiver")
        )

    def redacted(self) -> "Experiment":
        """The same experiment without secrets, for everything that is written or shown."""
        system = self.system
        url = system.url and redact_url(system.url)
        return msgspec.structs.replace(
            self,
            system=msgspec.structs.replace(system, url=url, settings=redact_value(system.settings)),
            inspect=[msgspec.structs.replace(item, url=item.url and redact_url(item.url)) for item in self.inspect],
            agents=[agent.redacted() for agent in self.agents],
            faults=[fault.redacted() for fault in self.faults],
            workload=[
                msgspec.structs.replace(
                    group,
                    address=redact_address(group.address),
                    failover=None if group.failover is None else [redact_address(text) for text in group.failover],
                    send_to=group.send_to and redact_place(group.send_to),
                    receive_from=group.receive_from and redact_place(group.receive_from),
                )
                for group in self.workload
            ],
        )


def _check_names(experiment: Experiment) -> None:
    names = [group.name for group in experiment.workload] + [group.name for group in experiment.clients]
    twice = {name for name, times in Counter(names).items() if times > 1}
    if twice:
        raise ValueError(f"two groups are called {sorted(twice)[0]!r}; give each group its own name")


def _check_connections(experiment: Experiment) -> None:
    senders = sum(group.senders for group in experiment.workload)
    receivers = sum(group.receivers for group in experiment.workload)
    if not experiment.workload and not experiment.clients:
        raise ValueError("workload: the list must have length >= 1, unless there are clients")
    if senders == 0 and not experiment.clients:
        raise ValueError("no group has a sender, so there would be nothing to measure")
    if max(senders, receivers) + sum(group.count for group in experiment.clients) > MAX_CONNECTIONS:
        raise ValueError(f"a run has at most {MAX_CONNECTIONS} senders and {MAX_CONNECTIONS} receivers")
    if senders * experiment.profile.segments > MAX_SCHEDULE_SEGMENTS:
        raise ValueError(
            f"{senders:,} senders with {experiment.profile.segments:,} steps each are too many; "
            f"their product is at most {MAX_SCHEDULE_SEGMENTS:,}"
        )


def _check_addresses(experiment: Experiment) -> None:
    received = {address for group in experiment.workload for address in group.shared_addresses("receiver")}
    sent = {address for group in experiment.workload for address in group.shared_addresses("sender")}
    if no_receiver := sorted(sent - received):
        raise ValueError(f"no receiver on {no_receiver[0]}; give a group on that address a receiver")
    if no_sender := sorted(received - sent):
        raise ValueError(f"no sender on {no_sender[0]}; give a group on that address a sender")


def _check_groups(experiment: Experiment) -> None:
    url = experiment.system.url
    scheme = "" if url is None else parse_url(url).scheme
    spoken = None if url is None else protocol_of_scheme(scheme)
    for group in experiment.workload:
        experiment.profile.check(group.rate)
        if spoken is not None and spoken.name != group.protocol and experiment.uses_system(group):
            raise ValueError(
                f"group {group.name!r} uses {group.protocol}, but the system's url begins with {scheme}://; "
                f"set its protocol to {spoken.name}, or change the url"
            )


def _check_topology(experiment: Experiment) -> None:
    if experiment.topology is None:
        if experiment.probe_links:
            raise ValueError("probe_links: it compares messages that cross a network; give its file as topology")
        for group in experiment.workload:
            _check_places(experiment, group)
        return
    if experiment.system != System(kind="loopback") or experiment.clients:
        raise ValueError("topology: the network is the system; remove system and clients, or remove topology")
    for group in experiment.workload:
        missing = {
            "send_to": group.senders and not group.send_to,
            "receive_from": group.receivers and not group.receive_from,
        }
        for key, is_missing in missing.items():
            if is_missing and group.needs_system:
                raise ValueError(f"group {group.name!r}: name the node of the network that it uses: {key}: NODE")


def _check_lab(experiment: Experiment) -> None:
    if experiment.lab is None:
        return
    if experiment.topology is not None or experiment.system.url is not None or experiment.clients:
        raise ValueError("lab: the system starts on a host of the lab; give system.kind, without topology and clients")
    elsewhere = [group.name for group in experiment.workload if any(address_of(a).url for a in group.addresses)]
    if elsewhere:
        raise ValueError(f"lab: hosts reach only each other; group {elsewhere[0]!r} must not name a system of its own")
    for role in ("sender", "receiver"):
        for place in filter(None, experiment.peers.places(role)):
            if place not in experiment.lab.hosts:
                raise ValueError(
                    f"peers.{role}s: {place!r} is not a host of the lab; {choice(place, experiment.lab.hosts)}"
                )


def _check_places(experiment: Experiment, group: Group) -> None:
    """Both sides of a group must be able to do what the group says, each in the protocol of its own URL."""
    for role, url in experiment.located_urls(group).items():
        try:
            if url == group.place_of(role):
                check_system_url(url)
            check_place(group, role, url)
        except ValueError as err:
            raise ValueError(f"group {group.name!r}: {PLACE_KEYS[role]}: {err}") from None


def _check_inspectors(experiment: Experiment) -> None:
    system = experiment.system
    for inspect in experiment.inspect:
        if inspect.url is not None or inspect.pid is not None:
            continue
        if system.url is not None:
            needed = "pid" if inspect.kind == PROCESS else "url (of its management interface)"
            raise ValueError(f"inspect: {inspect.kind} needs a {needed}, because Crescendo does not start the system")


def _check_checks(experiment: Experiment) -> None:
    slices = slice_names(experiment.workload, experiment.clients)
    for metric, bound in (experiment.checks or {}).items():
        check_metric(metric, slices, has_clients=bool(experiment.clients))
        check_bound(metric, bound)


def _check_stop_when(experiment: Experiment) -> None:
    slices = slice_names(experiment.workload, experiment.clients)
    for name, limit in experiment.stop_when.items():
        _, metric = split_metric(name)
        if metric not in STOP_METRICS or limit <= 0:
            raise ValueError(f"stop_when: {name!r}: {choice(metric, STOP_METRICS)}, with a duration above 0")
        check_metric(name, slices)


def _check_search(experiment: Experiment) -> None:
    search = experiment.search
    if search is None:
        return
    slices = slice_names(experiment.workload, experiment.clients)
    for metric in search.bounds:
        check_metric(metric, slices)
    if experiment.checks is not None:
        raise ValueError("search: a search judges search.limits; move the checks there")
    if experiment.faults:
        raise ValueError("search: every try would be disturbed by the faults; remove faults")
    if not isinstance(experiment.profile, ConstantProfile):
        raise ValueError("search: each try runs at one constant rate; remove profile")
    if not all(group.rate for group in experiment.workload if group.senders):
        raise ValueError("search scales the groups' rates, and 0 (unbounded) cannot be scaled; give a rate")
    duration = experiment.phases.measure.duration
    if search.wants_steady and (duration is None or duration < (MIN_SECONDS + 1) * 10**9):
        least = f"a duration of {MIN_SECONDS + 1}s or more"
        raise ValueError(f"search: to detect a growing backlog, phases.measure must be {least}")


def _check_clients(experiment: Experiment) -> None:
    if not experiment.clients:
        return
    check_clients(experiment.clients, experiment.peers.clients)
    system, phases = experiment.system, experiment.phases
    if system.kind != MLMQ.name and not (system.url or "").startswith(f"{MLMQ.scheme}://"):
        raise ValueError(f"clients need MLMQ; set system to kind: {MLMQ.name}, or to a url with {MLMQ.scheme}://")
    if phases.measure.duration is None:
        raise ValueError("clients run until their time is over; make phases.measure a duration")
    if phases.drain < MIN_DRAIN:
        raise ValueError(f"clients need time to finish their last messages; make phases.drain at least {MIN_DRAIN}")
    alone = {"stop_when": experiment.stop_when, "profile": not isinstance(experiment.profile, ConstantProfile)}
    for key, given in {"search": experiment.search, **({} if experiment.workload else alone)}.items():
        if given:
            raise ValueError(f"{key} applies to rates and receivers, and clients have neither; remove it")


def _check_agents(experiment: Experiment) -> None:
    check_agents(experiment.agents)


_RULES: tuple[Callable[[Experiment], None], ...] = (
    _check_names,
    _check_connections,
    _check_addresses,
    _check_groups,
    _check_topology,
    _check_lab,
    _check_inspectors,
    _check_checks,
    _check_stop_when,
    _check_search,
    _check_clients,
    _check_agents,
    check_faults,
)
"""What the values of an experiment must agree on. The first rule that is broken is reported."""
