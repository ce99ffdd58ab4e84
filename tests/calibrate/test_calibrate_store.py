"""Is a ceiling used only on the machine where it was measured, and is the share of it plain arithmetic?"""

from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crescendo.calibrate.calibration_file import (
    Calibration,
    Ceiling,
    Machine,
    machine_of,
    path_of,
    read_calibration,
    save_ceilings,
)
from crescendo.calibrate.share import CarriedLoad, percent_of_ceiling
from crescendo.record.manifest import ConnectionRecord, Manifest, PeerRecord, Phase, write_manifest
from crescendo.run.ceiling import ceiling_percent

MACHINE = Machine("lab-1", "Some CPU", 4, "3.11.7", "0.1.0")
SECOND_NS = 10**9


def ceiling(protocol: str, role: str, size: int, rate: float) -> Ceiling:
    return Ceiling(protocol, role, size, rate, rate, rate, 3)


CALIBRATION = Calibration(
    MACHINE,
    0,
    [
        ceiling("mqtt", "sender", 256, 1_000_000),
        ceiling("mqtt", "sender", 1024, 500_000),
        ceiling("mqtt", "receiver", 256, 400_000),
        ceiling("mqtt", "receiver", 1024, 200_000),
        ceiling("stomp", "sender", 256, 100_000),
    ],
)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("CRESCENDO_STATE", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def test_saved_ceilings_are_read_back_and_newer_ones_replace_older_ones(state: Path) -> None:
    assert read_calibration(MACHINE) is None
    save_ceilings(MACHINE, [ceiling("mqtt", "sender", 256, 1.0), ceiling("mqtt", "sender", 64, 2.0)], 1)
    path = save_ceilings(MACHINE, [ceiling("mqtt", "sender", 256, 3.0), ceiling("stomp", "sender", 256, 4.0)], 2)
    assert path.is_relative_to(state / "crescendo")
    known = read_calibration(MACHINE)
    assert known is not None
    assert {one.key: one.rate for one in known.ceilings} == {
        ("mqtt", "sender", 64): 2.0,
        ("mqtt", "sender", 256): 3.0,
        ("stomp", "sender", 256): 4.0,
    }


@pytest.mark.parametrize(
    "change",
    [{"name": "lab-2"}, {"processor": "Other"}, {"cores": 8}, {"python": "3.12.0"}, {"crescendo": "0.2.0"}],
    ids=lambda change: next(iter(change)),
)
def test_a_calibration_of_another_machine_or_version_is_not_used(change: dict[str, object]) -> None:
    save_ceilings(MACHINE, [ceiling("mqtt", "sender", 256, 1.0)], 1)
    other = msgspec.structs.replace(MACHINE, **change)
    if "name" not in change:  # one file per name: the hardest case is an existing file of another machine
        assert path_of(other) == path_of(MACHINE)
    assert read_calibration(other) is None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"machine": 3}'])
def test_an_unreadable_file_counts_as_no_calibration_and_can_be_replaced(content: bytes) -> None:
    save_ceilings(MACHINE, [], 1)
    path_of(MACHINE).write_bytes(content)
    assert read_calibration(MACHINE) is None
    save_ceilings(MACHINE, [ceiling("mqtt", "sender", 256, 1.0)], 1)
    assert read_calibration(MACHINE) is not None


def test_a_host_name_cannot_lead_out_of_the_state_directory(state: Path) -> None:
    path = path_of(msgspec.structs.replace(MACHINE, name="../../etc/x"))
    assert path.parent == state / "crescendo" / "calibration"


@pytest.mark.parametrize(("size", "rate"), [(32, 1_000_000), (256, 1_000_000), (257, 500_000), (1024, 500_000)])
def test_the_nearest_size_at_or_above_is_taken(size: int, rate: float) -> None:
    found = CALIBRATION.ceiling_of("mqtt", "sender", size)
    assert found is not None
    assert found.rate == rate
    assert CALIBRATION.ceiling_of("mqtt", "sender", 1025) is None


@pytest.mark.parametrize(
    ("loads", "processes", "percent"),
    [
        ([CarriedLoad("mqtt", "sender", 256, 250_000)], {"sender": 1, "receiver": 0}, 25.0),
        ([CarriedLoad("mqtt", "sender", 256, 250_000)] * 2, {"sender": 2, "receiver": 0}, 25.0),
        ([CarriedLoad("mqtt", "sender", 256, 250_000)], {"sender": 100, "receiver": 0}, 6.25),  # four cores, not 100
        # Shares of different ceilings add up: a quarter of one and a half of the other.
        (
            [CarriedLoad("mqtt", "sender", 256, 250_000), CarriedLoad("stomp", "sender", 100, 50_000)],
            {"sender": 1},
            75.0,
        ),
        # The busier role decides.
        (
            [CarriedLoad("mqtt", "sender", 256, 100_000), CarriedLoad("mqtt", "receiver", 256, 100_000)],
            {"sender": 1, "receiver": 1},
            25.0,
        ),
        ([CarriedLoad("stomp", "sender", 257, 1)], {"sender": 1}, None),
        ([], {"sender": 1, "receiver": 1}, None),
    ],
)
def test_the_share_is_what_arithmetic_says(
    loads: list[CarriedLoad], processes: dict[str, int], percent: float | None
) -> None:
    assert percent_of_ceiling(loads, processes, CALIBRATION) == (percent and pytest.approx(percent))


def manifest(run_dir: Path, **changes: object) -> Manifest:
    made = Manifest(
        run="r",
        tag=1,
        experiment={"name": "r", "workload": [{"name": "main", "protocol": "mqtt", "address": "topic://t"}]},
        command=[],
        started_ns=0,
        versions={"python": MACHINE.python, "crescendo": MACHINE.crescendo},
        host={"name": MACHINE.name, "processor": MACHINE.processor, "cores": MACHINE.cores},
        connections=[
            ConnectionRecord(0, "sender", "sender-0", "main", "topic://t", "t"),
            ConnectionRecord(0, "receiver", "receiver-0", "main", "topic://t", "t", "s"),
        ],
        peers=[
            PeerRecord("sender-0", "sender", MACHINE.name, 1, "finished"),
            PeerRecord("receiver-0", "receiver", MACHINE.name, 2, "finished"),
        ],
        phases=[
            Phase("warmup", 0, 3 * SECOND_NS // 2),
            Phase("measure", 3 * SECOND_NS // 2, 5 * SECOND_NS),
        ],
    )
    made = msgspec.structs.replace(made, **changes)
    write_manifest(run_dir, made)
    return made


def throughput(run_dir: Path) -> None:
    """100,000 messages of 1,000 bytes in every second from 2 to 4; only those seconds are measured as a whole."""
    rows = [
        {"second": second, "role": role, "connection": 0, "messages": count, "bytes": count * 1000}
        for role in ("sender", "receiver")
        for second, count in enumerate((9_000_000, 9_000_000, 100_000, 100_000, 100_000, 9_000_000))
    ]
    table = run_dir / "tables" / "throughput"
    table.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), table / "part-0.parquet")


def test_a_run_is_compared_with_the_ceilings_of_its_own_machine(tmp_path: Path) -> None:
    throughput(tmp_path)
    assert ceiling_percent(tmp_path, manifest(tmp_path)) is None
    save_ceilings(MACHINE, CALIBRATION.ceilings, 1)
    assert ceiling_percent(tmp_path, manifest(tmp_path)) == pytest.approx(50.0)  # the receiver: 100,000 of 200,000
    elsewhere = [PeerRecord("sender-0", "sender", "lab-2", 1, "finished")]
    assert ceiling_percent(tmp_path, manifest(tmp_path, peers=elsewhere)) is None
    assert ceiling_percent(tmp_path, manifest(tmp_path, versions={"python": "3.12.0", "crescendo": "0.1.0"})) is None


def test_a_manifest_is_enough_to_identify_the_machine(tmp_path: Path) -> None:
    made = manifest(tmp_path)
    assert machine_of(made.host, made.versions) == MACHINE
    assert machine_of({}, {}) == Machine("", "", 0, "", "")
