"""Do notes to peers contain paths of this machine, or the contents that these peers need?"""

from pathlib import Path

import msgpack

from crescendo.model.experiment_file import experiment_from
from crescendo.run.execute import with_contents
from crescendo.run.planning import SystemUnderTest, files_of_urls, plan_run


def test_certificates_travel_by_content_and_no_path_does(tmp_path: Path) -> None:
    for name in ("ca.pem", "own.pem", "own.key", "third.pem"):
        (tmp_path / name).write_text(f"content of {name}")
    address = f"amqps://host/queue/q?ca={tmp_path}/ca.pem&cert={tmp_path}/own.pem&key={tmp_path}/own.key"
    experiment = experiment_from(
        {
            "name": "trial",
            "workload": [{"name": "full", "address": address}, {"name": "short", "address": "queue://p"}],
            "inspect": [{"kind": "qpid-dispatch", "url": f"amqps://host?ca={tmp_path}/third.pem"}],
        }
    )
    system = SystemUnderTest({"amqp": f"amqps://host?ca={tmp_path}/ca.pem"})
    files = files_of_urls(experiment, system)
    assert sorted(Path(file).name for file in files) == ["ca.pem", "own.key", "own.pem", "third.pem"]
    names = {file: f"tls-{number}" for number, file in enumerate(files)}
    plan = with_contents(plan_run(experiment, tag=1, system=system, input_names=names).plan, {}, names)
    notes = {peer.role: msgpack.packb(peer.assignment) for peer in plan.peers}
    assert set(notes) == {"sender", "receiver", "inspector"}
    for role, note in notes.items():
        assert str(tmp_path).encode() not in note, role
    for role in ("sender", "receiver"):
        assert b"content of own.key" in notes[role]
