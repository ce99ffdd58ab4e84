"""Is a recording from a stranger read, or refused in one sentence, without touching anything else on this machine?"""

import copy
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crescendo.model.verdict import judge
from crescendo.record.documents import write_atomically
from crescendo.record.manifest import MANIFEST, read_manifest
from crescendo.record.summary import Ledger, Rate, Summary, write_summary
from crescendo.record.tables import THROUGHPUT, ThroughputRow
from hostile_readers import errors_of, opened_outside
from tiny_recordings import Tiny

Document = dict[str, Any]
TRAP = "TRAP"
"""In a hostile value, stands for the path of a FIFO outside the recording: opening it would hang."""

LIMIT_S = 100
MAX_GROWTH_BYTES = 200 * 2**20


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small sound recording with a summary and a table, which every reader reads without an error."""
    tiny = Tiny()
    tiny.carry(20)
    run_dir = tiny.write(tmp_path_factory.mktemp("recording") / "sound")
    counts = dict.fromkeys(Ledger.__struct_fields__[3:], 0)
    write_summary(
        run_dir,
        Summary(
            run="tiny", state="sealed", verdict=judge([], []), validity=[], latency=[], clock_bound_ns=0,
            rate=Rate(offered=0, sent=0, sustained=0, duration_ns=0, bytes_per_second=0),
            ledger=[Ledger(scope="total", sender=None, subscription=None, **counts)],
        ),
    )  # fmt: skip
    (run_dir / "tables" / "throughput").mkdir(parents=True)
    row = ThroughputRow(second=1, role="sender", connection=0, messages=20, bytes=2000)
    pq.write_table(THROUGHPUT.to_arrow([row]), run_dir / "tables" / "throughput" / "part-0.parquet")
    return run_dir


@pytest.fixture(autouse=True)
def no_calibration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def changed(**keys: Any) -> Callable[[Document], None]:
    return lambda document: document.update(keys)


def experiment(**keys: Any) -> Callable[[Document], None]:
    return lambda document: document["experiment"].update(keys)


def group(**keys: Any) -> Callable[[Document], None]:
    return lambda document: document["experiment"]["workload"][0].update(keys)


def peer(**keys: Any) -> Callable[[Document], None]:
    return lambda document: document["peers"][0].update(keys)


def connection(**keys: Any) -> Callable[[Document], None]:
    return lambda document: document["connections"][0].update(keys)


def part(**keys: Any) -> Callable[[Document], None]:
    return lambda document: document["files"][0].update(keys)


def phase(**keys: Any) -> Callable[[Document], None]:
    return lambda document: document["phases"][1].update(keys)


def raw(field: str, text: str) -> Callable[[Document], str]:
    """A field of this JSON text, which no encoder would write."""

    def write(document: Document) -> str:
        del document[field]
        return f'{{"{field}": {text}, {json.dumps(document)[1:]}'

    return write


POISSON = {"kind": "poisson"}
CASES: dict[str, tuple[Callable[[Document], str | None], str, str]] = {
    # name: what is changed, a reader, and what it says; nothing if it reads the recording
    "newer": (changed(format=2, peers="none any more"), "open", "made by a newer version of Crescendo"),
    "format-text": (changed(format="two"), "open", "cannot be read as a manifest: Expected `int`"),
    "role-is-a-path": (peer(role="/tmp/evil"), "export", "Invalid enum value"),  # noqa: S108 - must not be used
    "role-leads-up": (peer(role="../../evil"), "export", "Invalid enum value"),
    "role-of-a-connection": (connection(role="../x"), "open", "Invalid enum value"),
    "peer-is-a-path": (peer(id="../../../../evil"), "export", ""),
    "peer-is-dots": (peer(id=".."), "export", ""),
    "run-is-a-path": (changed(run="../../evil"), "report", ""),
    "part-outside": (part(path="../../../etc/passwd"), "export", "lies outside the recording"),
    "part-absolute": (part(path=TRAP, octets=0), "export", "lies outside the recording"),
    "part-is-the-manifest": (part(path="sent/../manifest.json"), "export", "lies outside the recording"),
    "part-of-many-bytes": (part(octets=2**53), "export", "bytes, not"),
    "part-of-negative-bytes": (part(octets=-1), "open", "Expected `int` >= 0"),
    "connection-of-many": (connection(id=2**40), "open", "Expected `int` <= 32767"),
    "connection-twice": (lambda d: d["connections"].append(d["connections"][0]), "open", "the same number"),
    "address-of-two-lines": (connection(address="queue://a\nqueue://b"), "open", "matching regex"),
    "phase-of-a-century": (phase(end_ns=2**62 - 1), "export", "seconds of all peers are too many for Maestro"),
    "phase-backwards": (phase(end_ns=0), "open", "ends before it starts"),
    "started-never": (changed(started_ns=2**63 - 1), "report", "Expected `int`"),
    "host-of-lists": (changed(host={"cores": ["many"]}), "ceiling", "Expected `int`, got `array`"),
    "system-of-numbers": (changed(system={"commands": 7}), "report", "Expected `object`, got `int`"),
    "deep": (raw("experiment", "[" * 100_000 + "]" * 100_000), "open", "nested too deeply"),
    "less-deep": (changed(versions=json.loads('{"a":' * 50 + "1" + "}" * 50)), "open", "Expected `str`"),
    "as-deep": (changed(host={"facts": json.loads("[" * 50 + "]" * 50)}), "open", "more than 32 levels deep"),
    "many-values": (raw("experiment", '{"a": [' + "[]," * 1_000_000 + "1]}"), "open", "more than 200,000 values"),
    "large-text": (raw("reason", '"' + "x" * 5_000_000 + '"'), "open", "at most 4,194,304 are read"),
    "payload-is-a-fifo": (group(size={"file": TRAP}), "export", ""),
    "trace-is-a-fifo": (experiment(profile={"kind": "replay", "file": TRAP}), "offered", ""),
    "group-of-many": (group(senders=2**31), "experiment", "workload[0].senders"),
    "size-of-many-sizes": (group(size="~60MB"), "experiment", ""),
    "steps-without-end": (
        experiment(profile={"kind": "incremental", "every": "1s", "step": 1e-12}), "experiment", "10,000 steps",
    ),
    "poisson-for-years": (
        lambda d: (experiment(profile=POISSON, phases={"measure": "80000h"})(d), group(rate=1e9)(d))[0], "offered", "",
    ),
    "poisson-count": (experiment(profile=POISSON, phases={"measure": 10**15}), "offered", ""),
    "drain-for-ever": (experiment(phases={"drain": "9" * 30 + "h"}), "experiment", "longer than 36 years"),
    "seed-below-zero": (experiment(profile=POISSON, seed=-1), "experiment", "seed"),
}  # fmt: skip


def write_case(original: Path, run_dir: Path, change: Callable[[Document], str | None], trap: Path) -> None:
    shutil.copytree(original, run_dir)
    document = json.loads((run_dir / MANIFEST).read_text())
    text = change(document)
    content = text if isinstance(text, str) else json.dumps(document)
    (run_dir / MANIFEST).write_text(content.replace(f'"{TRAP}"', json.dumps(str(trap))))


def test_the_sound_recording_is_read_by_all(original: Path) -> None:
    with opened_outside(original) as outside:
        assert errors_of(original) == {}
    assert outside == []


def test_hostile_manifests_are_refused_in_a_sentence_within_bounds(original: Path, tmp_path: Path) -> None:
    """In one process of their own, which ends in time, grows little and opens nothing else."""
    os.mkfifo(tmp_path / "trap")
    (tmp_path / "cases").mkdir()
    for name, (change, _, _) in CASES.items():
        write_case(original, tmp_path / "cases" / name, change, tmp_path / "trap")
    before = sorted(path for path in tmp_path.rglob("*"))
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("hostile_readers.py"), tmp_path / "cases"],
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for name, (_, reader, sentence) in CASES.items():
        case = found["cases"][name]
        said = case["errors"].get(reader, "")
        assert bool(said) == bool(sentence), (name, case)
        assert sentence in said, (name, said)
        assert case["outside"] == [], name
    assert found["grown_bytes"] < MAX_GROWTH_BYTES
    assert sorted(path for path in tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "name", ["manifest.json", "summary.json", "journal/sender-0.jsonl", "tables/throughput/part-0.parquet"]
)
@pytest.mark.parametrize("kind", ["fifo", "link", "loop", "device"])
def test_a_file_that_is_not_of_the_recording_is_not_opened(
    original: Path, tmp_path: Path, name: str, kind: str
) -> None:
    run_dir = tmp_path / "run"
    shutil.copytree(original, run_dir)
    if name.startswith("journal"):
        manifest = json.loads((run_dir / MANIFEST).read_text())
        (run_dir / MANIFEST).write_text(json.dumps(manifest | {"state": "incomplete", "files": []}))
    elsewhere = tmp_path / "elsewhere"
    (run_dir / name).rename(elsewhere)
    if kind == "fifo":
        os.mkfifo(run_dir / name)
    else:
        (run_dir / name).symlink_to({"link": elsewhere, "loop": run_dir / name, "device": Path("/dev/zero")}[kind])
    with opened_outside(run_dir) as outside:
        errors = errors_of(run_dir)
    assert any(f"{run_dir / name}: " in sentence for sentence in errors.values()), errors
    assert outside == []


@pytest.mark.parametrize("kind", ["fifo", "link"])
def test_a_part_that_is_not_a_regular_file_is_damaged(original: Path, tmp_path: Path, kind: str) -> None:
    run_dir = tmp_path / "run"
    shutil.copytree(original, run_dir)
    name = read_manifest(run_dir).files[0].path
    (run_dir / name).rename(tmp_path / "elsewhere")
    if kind == "fifo":
        os.mkfifo(run_dir / name)
    else:
        (run_dir / name).symlink_to(tmp_path / "elsewhere")
    with opened_outside(run_dir) as outside:
        errors = errors_of(run_dir)
    assert name in errors["export"]
    assert outside == []


def test_what_is_written_into_a_recording_stays_there(original: Path, tmp_path: Path) -> None:
    """The name of a temporary file may be a link that leads elsewhere, or a FIFO."""
    run_dir = tmp_path / "run"
    shutil.copytree(original, run_dir)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (run_dir / "manifest.json.tmp").symlink_to(victim)
    os.mkfifo(run_dir / "summary.json.tmp")
    write_atomically(run_dir / "manifest.json", b"{}")
    write_atomically(run_dir / "summary.json", b"{}")
    assert victim.read_text() == "precious"
    assert (run_dir / "manifest.json").read_bytes() == (run_dir / "summary.json").read_bytes() == b"{}"


PATHS = ["/etc/passwd", "../../etc/passwd", "sent/../../x", "manifest.json", ".", "..", "", "\0", "\n", "a" * 20_000]
NUMBERS = [-1, 0, 2**15, 2**31, 2**53 + 1, 2**62, 2**63 - 1, 2**64, -(2**63), 1.5, 1e300]
hostile_values = st.one_of(
    st.sampled_from([*PATHS, *NUMBERS, None, True, [], {}, [[]], [{}], {"file": "/etc/passwd"}, [0] * 50_000]),
    st.text(max_size=20),
    st.integers(),
    st.recursive(st.none(), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)),
)


def places_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value in a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, inner in items for place in [(*path, key), *places_in(inner, (*path, key))]]


def read_any_change(original: Path, run_dir: Path, data: st.DataObject) -> None:
    """Change one to three values of a manifest; every reader must read the recording or raise a ConfigError."""
    if not run_dir.exists():
        shutil.copytree(original, run_dir)
    document = json.loads((original / MANIFEST).read_text())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.sampled_from(places_in(document)))
        holder = document
        for key in place[:-1]:
            holder = holder[key]
        holder[place[-1]] = copy.deepcopy(data.draw(hostile_values))
    (run_dir / MANIFEST).write_text(json.dumps(document))
    with opened_outside(run_dir) as outside:
        errors_of(run_dir)
    assert outside == []


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_change_of_a_manifest_is_read_or_refused(original: Path, data: st.DataObject) -> None:
    read_any_change(original, original.parent / "changed", data)


@pytest.mark.soak
@pytest.mark.timeout(900)
@settings(max_examples=3000, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_of_many_changes_of_a_manifest_is_read_or_refused(original: Path, data: st.DataObject) -> None:
    read_any_change(original, original.parent / "changed", data)
