"""Whole runs against the reference server: started, driven, and read back beside the truth.

The run is Crescendo's own (conductor, sender process, receiver process, recording), without an analysis. The recording
and the truth are read with DuckDB; nothing here uses our readers.
"""

import contextlib
import json
import subprocess
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

import crescendo
from crescendo.model.experiment_file import experiment_from
from crescendo.model.protocols import OWN
from plain_protocol import PLAIN
from reference_protocols import PROTOCOLS
from reference_scenario import BARE, Scenario, destination_of


@dataclass(frozen=True)
class ReferenceRun:
    """A recording and the truth about it."""

    run_dir: Path
    truth_dir: Path


@contextlib.contextmanager
def _child(script: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A script of this folder, which ends when its standard input is closed."""
    command = [sys.executable, str(Path(__file__).with_name(script)), *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.communicate(timeout=30)
    assert process.returncode == 0, f"{script} ended with {process.returncode}"


@contextlib.contextmanager
def reference_server(scenario: Scenario, directory: Path) -> Iterator[dict[str, int]]:
    """The ports of a server that follows the scenario; when it has ended, its truth is in the directory."""
    scenario_file = directory / "scenario.json"
    scenario_file.write_bytes(msgspec.json.encode(scenario))
    with _child("reference_server.py", str(scenario_file), str(directory)) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())


def experiment_on(
    scenario: Scenario, ports: dict[str, int], rate: float, measure: str, protocols: Collection[str]
) -> dict[str, Any]:
    """One sender and one receiver for each protocol and route."""
    groups = [
        {
            "name": destination_of(protocol, route),
            "protocol": protocol,
            "address": f"{OWN[protocol].scheme}://127.0.0.1:{ports[protocol]}/queue/{destination_of(protocol, route)}",
            "rate": rate,
            "size": 256,
        }
        for route in scenario.routes
        for protocol in protocols
    ]
    return {
        "name": "reference",
        "system": {"url": f"amqp://127.0.0.1:{ports['amqp10']}"},
        "workload": groups,
        "phases": {"warmup": "0s", "measure": measure, "drain": "3s"},
    }


def record(
    scenario: Scenario, directory: Path, *, rate: float, measure: str, protocols: Collection[str] = PROTOCOLS
) -> ReferenceRun:
    """Run a load through a reference server, over every route in every protocol; plain sockets beside a bare route."""
    truth_dir = directory / "truth"
    truth_dir.mkdir(parents=True)
    with reference_server(scenario, truth_dir) as ports:
        experiment = experiment_from(experiment_on(scenario, ports, rate, measure, protocols))
        plain_sockets = _child("plain_sockets.py", str(ports[PLAIN]), str(rate), str(truth_dir / "plain.csv"))
        with plain_sockets if BARE in scenario.routes else contextlib.nullcontext():
            result = crescendo.run(experiment, out=directory / "runs", analyze=False)
    assert result.state.value == "sealed", result.reason
    return ReferenceRun(Path(result.run_dir), truth_dir)
