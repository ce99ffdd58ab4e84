"""The options that several verbs share."""

from pathlib import Path
from typing import Annotated

import typer

Out = Annotated[Path, typer.Option("--out", help="Where recordings are written: OUT/<name>-<time>/.")]
Json = Annotated[bool, typer.Option("--json", help="Print the summary as JSON instead of text.")]
