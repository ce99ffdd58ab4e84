"""The verb `demo`: run the built-in experiment."""

from importlib.resources import files
from pathlib import Path

from crescendo.cli.options import Json, NoFsync, Out


def demo(out: Out = Path("runs"), no_fsync: NoFsync = False, as_json: Json = False) -> int:
    """Run the built-in experiment: load, recording, Spark tables, verdict, report. Nothing to install.

    Starts MLMQ, the message queue on an embedded PostgreSQL, with two senders and two receivers on this machine, and
    stops them all at the end.
    """
    import yaml

    from crescendo.cli.run_view import run_and_show
    from crescendo.model.experiment_file import experiment_from

    document = yaml.safe_load((files("crescendo.run") / "demo.yml").read_text(encoding="utf-8"))
    command = ["crescendo", "demo", *(["--no-fsync"] if no_fsync else [])]
    return run_and_show(experiment_from(document), command, out, durable=not no_fsync, as_json=as_json)
