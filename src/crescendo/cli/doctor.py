"""The verb `doctor`: is everything installed that Crescendo needs?"""

import importlib.metadata
import os
import platform
import sys
from collections.abc import Callable

import msgspec
from msgspec import Struct

from crescendo import __version__
from crescendo.cli.options import Json
from crescendo.model.errors import ConfigError
from crescendo.pipeline.spark.java import find_java, java_version
from crescendo.systems.registry import SYSTEMS

_LIBRARIES = ("amqtt", "jinja2", "msgspec", "numpy", "paho-mqtt", "plotly", "psutil", "pyarrow", "pyspark", "rich")
_ENOUGH_MEMORY = 2 * 2**30


class Diagnosis(Struct, frozen=True):
    """The result of one check."""

    name: str
    ok: bool
    detail: str


def doctor(as_json: Json = False) -> int:
    """Show what is installed, what is missing, and how to get it."""
    from rich.console import Console

    diagnoses = [_guarded(name, check) for name, check in _CHECKS.items()]
    if as_json:
        print(msgspec.json.encode(diagnoses).decode())
    else:
        console = Console(highlight=False)
        for diagnosis in diagnoses:
            mark = "[green]✓[/green]" if diagnosis.ok else "[red]✗[/red]"
            console.print(f" {mark} {diagnosis.name:10} {diagnosis.detail}", soft_wrap=True)
        missing = sum(not diagnosis.ok for diagnosis in diagnoses)
        console.print("everything is in place" if not missing else f"{missing} item(s) need your attention")
    return 0 if all(diagnosis.ok for diagnosis in diagnoses) else 2


def _guarded(name: str, check: Callable[[], str]) -> Diagnosis:
    try:
        return Diagnosis(name, True, check())
    except ConfigError as err:
        return Diagnosis(name, False, str(err))


def _crescendo() -> str:
    return f"{__version__} in {sys.prefix}"


def _python() -> str:
    return f"{platform.python_version()} on {platform.system()} {platform.machine()}"


def _java() -> str:
    java = find_java()
    return f"{java_version(java)} at {java}"


def _libraries() -> str:
    missing = []
    for name in _LIBRARIES:
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        raise ConfigError(f"{', '.join(missing)} missing; reinstall Crescendo: pip install crescendo-lab")
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in _LIBRARIES)


def _machine() -> str:
    import psutil

    memory = psutil.virtual_memory().total
    if memory < _ENOUGH_MEMORY:
        raise ConfigError(f"{memory / 2**30:.1f} GiB of memory; Spark needs at least {_ENOUGH_MEMORY / 2**30:.0f} GiB")
    return f"{os.cpu_count()} cores, {memory / 2**30:.0f} GiB of memory"


def _systems() -> str:
    return f"{', '.join(sorted(SYSTEMS))}; crescendo system list shows which are installed"


_CHECKS: dict[str, Callable[[], str]] = {
    "crescendo": _crescendo,
    "python": _python,
    "java": _java,
    "libraries": _libraries,
    "machine": _machine,
    "systems": _systems,
}
