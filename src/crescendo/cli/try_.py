"""The verb `try`: measure a system with one line, without an experiment file."""

from pathlib import Path

from crescendo.cli import load_flags as flags
from crescendo.cli.options import Json, Out


def try_(
    url: flags.Url = None,
    url_file: flags.UrlFile = None,
    queue: flags.Queue = None,
    topic: flags.Topic = None,
    producers: flags.Producers = 1,
    consumers: flags.Consumers = 1,
    rate: flags.Rate = 500.0,
    size: flags.Size = "256",
    length: flags.Length = "10s",
    persistent: flags.Persistent = False,
    confirm: flags.Confirm = None,
    out: Out = Path("runs"),
    as_json: Json = False,
) -> int:
    """Measure a system that is running, with one line: crescendo try amqp://guest:guest@localhost

    The protocol follows from the URL. Without --queue, the run makes a queue of its own. Prints rates while it runs,
    then the verdict and a report; the exit code is that of `run`. `crescendo init` writes the same as a file.
    """
    from crescendo.cli.run_view import run_and_show
    from crescendo.cli.secret_options import secret_url
    from crescendo.model.quick_experiment import LoadFlags, quick_document
    from crescendo.model.urls import redact_url

    where = flags.required_url(secret_url("--url", url, url_file, "URL"))
    load = LoadFlags(
        queue=queue, topic=topic, producers=producers, consumers=consumers, rate=rate, size=size, length=length,
        persistent=persistent, confirm=confirm,
    )  # fmt: skip
    experiment = flags.experiment_of_flags(quick_document(where, load), "try")
    command = ["crescendo", "try", redact_url(where), *load.arguments]
    return run_and_show(experiment, command, out, start_spark_first=False, as_json=as_json)
