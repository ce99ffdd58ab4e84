"""Is a run that was watched on its own machine shown as observed, by this version and by version 0.1?"""

import socket
from pathlib import Path

import msgspec

from crescendo.record.manifest import MANIFEST, Manifest, PeerRecord, State, write_manifest
from crescendo.record.observed import OBSERVED, OBSERVED_FILE, host_facts_of, write_observation

RUNNING = Manifest("r", 1, {}, [], 5, host={"name": socket.gethostname(), "cores": 2})


def test_a_watcher_leaves_a_file_beside_the_manifest(tmp_path: Path) -> None:
    write_manifest(tmp_path, RUNNING)
    before = (tmp_path / MANIFEST).read_bytes()
    write_observation(tmp_path, RUNNING, 1)
    assert (tmp_path / MANIFEST).read_bytes() == before
    facts = host_facts_of(tmp_path, RUNNING)
    assert list(facts) == ["name", "cores", OBSERVED], "shown last, as in version 0.1"
    assert facts[OBSERVED].startswith("by live tables, on 1 of the cores, since ")


def test_a_watcher_that_disturbs_nothing_leaves_nothing(tmp_path: Path) -> None:
    elsewhere = msgspec.structs.replace(RUNNING, host={"name": "another-machine"})
    sealed = msgspec.structs.replace(RUNNING, state=State.SEALED)
    lost = msgspec.structs.replace(RUNNING, peers=[PeerRecord("p", "sender", "here", 1, "lost")])
    for manifest in (elsewhere, sealed, lost):
        write_observation(tmp_path, manifest, 1)
        assert host_facts_of(tmp_path, manifest) == manifest.host
    assert not list(tmp_path.iterdir())


def test_a_mark_in_the_manifest_of_an_older_recording_is_still_shown(tmp_path: Path) -> None:
    older = msgspec.structs.replace(RUNNING, host={**RUNNING.host, OBSERVED: "by live tables, on 1 of the cores"})
    assert host_facts_of(tmp_path, older)[OBSERVED] == "by live tables, on 1 of the cores"


def test_a_damaged_file_is_ignored(tmp_path: Path) -> None:
    (tmp_path / OBSERVED_FILE).write_bytes(b"{")
    assert host_facts_of(tmp_path, RUNNING) == RUNNING.host
