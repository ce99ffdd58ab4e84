"""The verb `doctor`: is everything installed that Crescendo needs, and what do plugins add?"""

import sys
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from crescendo.cli.options import Json

if TYPE_CHECKING:
    from crescendo.run.diagnosis import Diagnosis


def doctor(
    as_json: Json = False,
    clean: Annotated[
        bool,
        typer.Option("--clean", help="First remove what killed runs left: hosts of a lab, disks and limits of faults."),
    ] = False,
) -> int:
    """Show what is installed, what is missing, and how to get it."""
    from crescendo.cli.main import own_verbs  # here, because it lists this verb too
    from crescendo.run.diagnosis import diagnose, remove_leftovers

    if clean:
        for sentence in remove_leftovers():
            print(sentence, file=sys.stderr)
    diagnoses = diagnose(own_verbs())
    if as_json:
        print(msgspec.json.encode(diagnoses).decode())
    else:
        _print(diagnoses)
    return 2 if any(found.needs_attention for found in diagnoses) else 0


def _print(diagnoses: "list[Diagnosis]") -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    for diagnosis in diagnoses:
        mark, colour = _mark(diagnosis)
        console.print(f" {mark} ", style=colour, end="")
        console.print(f"{diagnosis.name:10} {diagnosis.detail}", soft_wrap=True)
    console.print(_conclusion(diagnoses), soft_wrap=True)


def _mark(diagnosis: "Diagnosis") -> tuple[str, str]:
    if diagnosis.ok:
        return "✓", "green"
    return ("✗", "red") if diagnosis.needs_attention else ("–", "yellow")


def _conclusion(diagnoses: "list[Diagnosis]") -> str:
    from crescendo.run.diagnosis import SystemDiagnosis

    if needed := sum(found.needs_attention for found in diagnoses):
        return f"{needed} item(s) need your attention"
    absent = [found.kind for found in diagnoses if isinstance(found, SystemDiagnosis) and not found.ok]
    if absent:
        return f"everything that Crescendo needs is in place; not installed: {', '.join(absent)}"
    return "everything is in place"
