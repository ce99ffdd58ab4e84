"""The verb `init`: write a commented experiment file to start from."""

from pathlib import Path
from typing import Annotated

import typer

from crescendo.cli import load_flags as flags
from crescendo.model.errors import ConfigError


def init(
    url: flags.Url = None,
    url_file: flags.UrlFile = None,
    file: Annotated[Path, typer.Option("--file", "-f", help="Where to write it.")] = Path("experiment.yml"),
    queue: flags.Queue = None,
    topic: flags.Topic = None,
    producers: flags.Producers = 1,
    consumers: flags.Consumers = 1,
    rate: flags.Rate = 500.0,
    size: flags.Size = "256",
    length: flags.Length = "10s",
    persistent: flags.Persistent = False,
    confirm: flags.Confirm = None,
) -> int:
    """Write an experiment file with a comment for every choice, from the same flags as `try`.

    User and password are not written: give the whole URL when you run the file, with --set-file system.url=FILE. An
    existing file is left alone.
    """
    from crescendo.cli.secret_options import secret_url
    from crescendo.model.quick_experiment import LoadFlags, commented_file, quick_document

    load = LoadFlags(
        queue=queue, topic=topic, producers=producers, consumers=consumers, rate=rate, size=size, length=length,
        persistent=persistent, confirm=confirm,
    )  # fmt: skip
    document = quick_document(_without_credentials(secret_url("--url", url, url_file, "URL")), load) | {
        "name": file.stem
    }
    flags.experiment_of_flags(document, "init")  # a mistake in a flag is found now, not in the file
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(commented_file(document))
    except FileExistsError:
        raise ConfigError(f"{file} exists; give another name with --file, or remove it") from None
    except OSError as err:
        raise ConfigError(f"{file} cannot be written: {err.strerror}") from err
    print(f"{file} written; to run it: crescendo run {file}")
    return 0


def _without_credentials(url: str | None) -> str:
    from crescendo.model.urls import redact_url_text, without_credentials

    try:
        return without_credentials(url or "amqp://localhost")
    except ValueError as err:
        raise ConfigError(f"{redact_url_text(url or '')!r}: {err}") from None
