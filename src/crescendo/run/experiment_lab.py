"""How does an experiment run on hosts of its own?

The hosts of its key `lab` are made before anything starts, with their links; the system starts on one of them, and the
peers on those that the file names. All of them have the clock and the name of this machine, so times need no
comparison. Everything is gone when the run is. Knows no fault and reads no results.
"""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from crescendo.lab.control_gateway import ControlGateway
from crescendo.lab.host_network import HostNetwork
from crescendo.lab.link_faults import IMPAIR, ImpairSettings
from crescendo.lab.network_baseline import measure_network
from crescendo.lab.station import Station
from crescendo.lab.tcp_link import refuse_packet_keys
from crescendo.model.errors import ConfigError, CrescendoError
from crescendo.model.experiment import Experiment
from crescendo.model.lab_network import CLEAN, LabLink, LabSettings
from crescendo.model.units import format_unit
from crescendo.model.urls import parse_url
from crescendo.run.planning import SystemUnderTest
from crescendo.run.system_on_host import HostedSystem, HostedSystemOrder
from crescendo.systems.base import SystemKind
from crescendo.systems.settings import settings_of

_ANY_ADDRESS = "192.0.2.1"
_LOOPBACK = ("127.0.0.1", "localhost")


def check_lab_of(experiment: Experiment, kind: SystemKind) -> None:
    """Reject a system that cannot listen on a host of the lab."""
    if experiment.lab is None:
        return
    if experiment.system.fresh:
        raise ConfigError("system.fresh: hosts of a lab use what is installed; leave it out")
    if "listen" in experiment.system.settings:
        raise ConfigError("system.settings.listen: in a lab it listens at the address of its host; leave it out")
    try:
        settings_of(kind, {"listen": _ANY_ADDRESS})
    except ConfigError:
        raise ConfigError(
            f"lab: {kind.name} listens on the loopback interface only, where no other host reaches it; "
            "use another kind of system"
        ) from None


class ExperimentLab:
    """The hosts of one run."""

    def __init__(
        self, experiment: Experiment, control_url: str, stack: contextlib.ExitStack, progress: Callable[[str], None]
    ) -> None:
        """Make the hosts; `stack` removes them."""
        assert experiment.lab is not None  # noqa: S101 - the caller looks first
        self._settings: LabSettings = experiment.lab
        self._places = {role: experiment.peers.places(role) for role in ("sender", "receiver")}
        control = parse_url(control_url)
        if control.host not in _LOOPBACK or control.port is None:
            raise ConfigError("lab: hosts of the lab reach a control broker of this machine only; leave --control out")
        progress("making the hosts of the lab")
        self._network = stack.enter_context(HostNetwork(seed=experiment.seed))
        gateway = ControlGateway(control.host or "", control.port)
        stack.callback(gateway.close)
        self._add_hosts(self._impaired_later(experiment))
        for host in self._network.hosts.values():
            gateway.add(host.listener(control.port))
        links = self._settings.hosts
        self._stations = {
            name: Station(host, links[name], experiment.seed) for name, host in self._network.hosts.items()
        }
        self._baselines: dict[str, dict[str, Any]] = {}
        if self._settings.baseline:
            progress("measuring the network of the lab")
            self._measure()

    def _impaired_later(self, experiment: Experiment) -> dict[str, list[ImpairSettings]]:
        """The hosts whose links a fault impairs during the run, and how."""
        found: dict[str, list[ImpairSettings]] = {}
        for planned in experiment.faults:
            if planned.do == IMPAIR.name and planned.settings.keys() & {"up", "down"}:
                found.setdefault(planned.on, []).append(IMPAIR.settings_of(planned.settings))
        return found

    def _add_hosts(self, impaired_later: dict[str, list[ImpairSettings]]) -> None:
        settings = self._settings
        self._network.add_access_points({name: point.network for name, point in settings.access_points.items()})
        impaired = {name for name, link in settings.hosts.items() if link.is_impaired or name in impaired_later}
        self._why_no_tap = self._network.why_no_tap() if impaired else ""
        if self._why_no_tap:
            for name in impaired:
                self._check_tcp_link(name, settings.hosts[name], impaired_later.get(name, []))
        for name, link in settings.hosts.items():
            by_packets = name in impaired and not self._why_no_tap
            self._network.add(name, access_point=link.access_point, packet_link=by_packets)
        for name, link in settings.hosts.items():
            host = self._network.hosts[name]
            if name in impaired and self._why_no_tap:
                host.link_over_tcp(self._network.hosts[settings.system])
            if name in impaired:
                host.impair(link.up or CLEAN, link.down or CLEAN)
            if link.arp_retry is not None:
                host.ask_arp_again_after(link.arp_retry // 10**6)
            if link.rto_min is not None:
                host.retransmit_after(link.rto_min // 10**6)
            if any(link.rates_bps):
                host.limit(*link.rates_bps)

    def _check_tcp_link(self, name: str, link: LabLink, later: list[ImpairSettings]) -> None:
        """Reject what a link without packets cannot do."""
        impairments = [link.up, link.down, *(side for one in later for side in (one.up, one.down))]
        refuse_packet_keys(name, self._why_no_tap, *impairments)
        if link.rto_min is not None or link.arp_retry is not None:
            raise ConfigError(
                f"lab: {name} has rto_min or arp_retry, which have no effect on a TCP link, and there is no TAP "
                f"interface here ({self._why_no_tap}); run as root with /dev/net/tun, or leave them out"
            )

    def _measure(self) -> None:
        """Between the system's host and every host with peers."""
        system = self._network.hosts[self._settings.system]
        placed = {self._place(role, number) for role, places in self._places.items() for number in range(len(places))}
        for name in sorted(placed - {system.name}):
            self._baselines[name] = msgspec.to_builtins(measure_network(self._network.hosts[name], system))

    @property
    def stations(self) -> dict[str, Station]:
        """The hosts, as faults see them."""
        return self._stations

    def start_system(
        self,
        experiment: Experiment,
        settings: dict[str, Any],
        run_dir: Path,
        stop_grace_s: float,
        stack: contextlib.ExitStack,
    ) -> tuple[SystemUnderTest, dict[str, Any]]:
        """Start the system on its host; `stack` stops it."""
        system, host = experiment.system, self._network.hosts[self._settings.system]
        hosted = HostedSystem(
            host,
            HostedSystemOrder(
                system.kind or "",
                {**settings, "listen": host.address},
                str(run_dir.resolve() / "system"),
                str(run_dir / "logs"),
                system.home,
                system.version,
                stop_grace_s,
            ),
        )
        stack.callback(hosted.stop)
        ports = {port for url in hosted.endpoints.values() if (port := parse_url(url).port) is not None}
        for other in self._network.hosts.values():
            for port in sorted(ports):
                other.open_port(port)
        return SystemUnderTest(hosted.endpoints, hosted.pid, hosted.exit), hosted.facts

    def command_of(self, peer: str, role: str) -> Callable[[Sequence[str]], list[str]]:
        """What makes a command run where this peer belongs: inspectors beside the system."""
        place = self._place(role, int(peer.rpartition("-")[2])) if role in self._places else self._settings.system
        return self._network.hosts[place].network_command

    def _place(self, role: str, number: int) -> str:
        return self._places[role][number] or self._settings.system

    @property
    def failure(self) -> str:
        """Why the network is not what the file says any more; empty if it is."""
        return self._network.failure

    def facts(self) -> dict[str, Any]:
        """What the manifest keeps: hosts, by which means links are impaired, baselines, and what packets suffered."""
        hosts: dict[str, Any] = {}
        for name, host in self._network.hosts.items():
            hosts[name] = {"address": host.address}
            with contextlib.suppress(CrescendoError):  # a link that was lost: the run has failed for other reasons
                if (counts := host.packet_counts) is not None:
                    hosts[name] |= {
                        "link": host.link_means,
                        "packets": msgspec.to_builtins(counts, enc_hook=format_unit),
                    }
                if (passed := host.tcp_counts) is not None:
                    why = {"why_no_tap": self._why_no_tap}
                    hosts[name] |= {"link": host.link_means, "passed": msgspec.to_builtins(passed), **why}
            if name in self._baselines:
                hosts[name]["baseline"] = self._baselines[name]
        return {"hosts": hosts, "rootless": self._network.rootless}
