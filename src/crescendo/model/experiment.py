"""What is an experiment?

One frozen value. Its parts are in `experiment_parts.py`, the load in `workload.py`, and the rules that all of them
follow together in `experiment_rules.py`; `experiment_file.py` reads it from a file. Starts nothing.
"""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct, field

from crescendo.model.agents import Agent
from crescendo.model.experiment_parts import Inspect, Peers, Phases, System
from crescendo.model.experiment_rules import RULES
from crescendo.model.group_places import place_urls, with_place_urls
from crescendo.model.lab_network import LabSettings
from crescendo.model.mlmq_clients import Clients
from crescendo.model.name_patterns import NAME_PATTERN
from crescendo.model.pacer import Pacer
from crescendo.model.planned_faults import PlannedFault
from crescendo.model.profile import ConstantProfile, Profile
from crescendo.model.redaction import redact_address, redact_place, redact_value
from crescendo.model.search import Search
from crescendo.model.units import Duration
from crescendo.model.urls import redact_url
from crescendo.model.verdict import Bound, client_checks, default_checks
from crescendo.model.workload import RUN, Group

MAX_PROBES = 1_000_000


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
        for check in RULES:
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
