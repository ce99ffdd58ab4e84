"""What must the values of an experiment agree on?

Whatever cannot be run, or would measure something other than what was asked for, is rejected here, so that later stages
need not check again. A rule raises ValueError with a sentence. Reads no file.
"""

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from crescendo.model.address import address_of
from crescendo.model.agents import check_agents
from crescendo.model.experiment_parts import PROCESS, System
from crescendo.model.fault_schedule import check_faults
from crescendo.model.group_places import KEYS as PLACE_KEYS
from crescendo.model.group_places import check_place
from crescendo.model.metrics import STOP_METRICS, split_metric
from crescendo.model.mlmq_clients import MIN_DRAIN, check_clients
from crescendo.model.profile import ConstantProfile
from crescendo.model.protocols import MLMQ, protocol_of_scheme
from crescendo.model.search import MIN_SECONDS
from crescendo.model.slices import slice_names
from crescendo.model.suggestions import choice
from crescendo.model.system_url import check_system_url
from crescendo.model.urls import parse_url
from crescendo.model.verdict import check_bound, check_metric
from crescendo.model.workload import MAX_CONNECTIONS, Group

if TYPE_CHECKING:
    from crescendo.model.experiment import Experiment

MAX_SCHEDULE_SEGMENTS = 5_000_000
"""Steps of a profile, times the senders that follow it: more would take minutes to compute."""


def _check_names(experiment: "Experiment") -> None:
    names = [group.name for group in experiment.workload] + [group.name for group in experiment.clients]
    twice = {name for name, times in Counter(names).items() if times > 1}
    if twice:
        raise ValueError(f"two groups are called {sorted(twice)[0]!r}; give each group its own name")


def _check_connections(experiment: "Experiment") -> None:
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


def _check_addresses(experiment: "Experiment") -> None:
    received = {address for group in experiment.workload for address in group.shared_addresses("receiver")}
    sent = {address for group in experiment.workload for address in group.shared_addresses("sender")}
    if no_receiver := sorted(sent - received):
        raise ValueError(f"no receiver on {no_receiver[0]}; give a group on that address a receiver")
    if no_sender := sorted(received - sent):
        raise ValueError(f"no sender on {no_sender[0]}; give a group on that address a sender")


def _check_groups(experiment: "Experiment") -> None:
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


def _check_topology(experiment: "Experiment") -> None:
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


def _check_lab(experiment: "Experiment") -> None:
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


def _check_places(experiment: "Experiment", group: Group) -> None:
    """Both sides of a group must be able to do what the group says, each in the protocol of its own URL."""
    for role, url in experiment.located_urls(group).items():
        try:
            if url == group.place_of(role):
                check_system_url(url)
            check_place(group, role, url)
        except ValueError as err:
            raise ValueError(f"group {group.name!r}: {PLACE_KEYS[role]}: {err}") from None


def _check_inspectors(experiment: "Experiment") -> None:
    system = experiment.system
    for inspect in experiment.inspect:
        if inspect.url is not None or inspect.pid is not None:
            continue
        if system.url is not None:
            needed = "pid" if inspect.kind == PROCESS else "url (of its management interface)"
            raise ValueError(f"inspect: {inspect.kind} needs a {needed}, because Crescendo does not start the system")


def _check_checks(experiment: "Experiment") -> None:
    slices = slice_names(experiment.workload, experiment.clients)
    for metric, bound in (experiment.checks or {}).items():
        check_metric(metric, slices, has_clients=bool(experiment.clients))
        check_bound(metric, bound)


def _check_stop_when(experiment: "Experiment") -> None:
    slices = slice_names(experiment.workload, experiment.clients)
    for name, limit in experiment.stop_when.items():
        _, metric = split_metric(name)
        if metric not in STOP_METRICS or limit <= 0:
            raise ValueError(f"stop_when: {name!r}: {choice(metric, STOP_METRICS)}, with a duration above 0")
        check_metric(name, slices)


def _check_search(experiment: "Experiment") -> None:
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


def _check_clients(experiment: "Experiment") -> None:
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


def _check_agents(experiment: "Experiment") -> None:
    check_agents(experiment.agents)


RULES: tuple[Callable[["Experiment"], None], ...] = (
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
