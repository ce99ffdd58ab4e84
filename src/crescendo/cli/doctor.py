"""The verb `doctor`: is everything here that Crescendo needs?"""

import importlib.metadata
import os
import platform
import sys
from collections.abc import Callable

import msgspec
import psutil
from msgspec import Struct
from rich.console import Console

from crescendo import __version__
from crescendo.model.errors import ConfigError
from crescendo.pipeline.spark.java import find_java, java_version
from crescendo.systems.registry import SYSTEMS

_LIBRARIES = ("amqtt", "jinja2", "msgspec", "numpy", "paho-mqtt", "plotly", "psutil", "pyarrow", "pyspark", "rich")
_ENOUGH_MEMORY = 2 * 2**30


class Diagnosis(Struct, frozen=True):
    """One thing that was looked at."""

    name: str
    ok: bool
    detail: str


def doctor(as_json: bool) -> int:
    findings = [_guarded(name, look) for name, look in _LOOKS.items()]
    if as_json:
        print(msgspec.json.encode(findings).decode())
    else:
        console = Console(highlight=False)
        for finding in findings:
            mark = "[green]✓[/green]" if finding.ok else "[red]✗[/red]"
            console.print(f" {mark} {finding.name:10} {finding.detail}", soft_wrap=True)
        missing = sum(not finding.ok for finding in findings)
        console.print("everything is here" if not missing else f"{missing} thing(s) need your attention")
    return 0 if all(finding.ok for finding in findings) else 2


def _guarded(name: str, look: Callable[[], str]) -> Diagnosis:
    try:
        return Diagnosis(name, True, look())
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
        raise ConfigError(f"{', '.join(missing)} missing; install Crescendo anew: pip install crescendo-lab")
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in _LIBRARIES)


def _machine() -> str:
    memory = psutil.virtual_memory().total
    if memory < _ENOUGH_MEMORY:
        raise ConfigError(f"{memory / 2**30:.1f} GiB of memory; Spark wants at least {_ENOUGH_MEMORY / 2**30:.0f} GiB")
    return f"{os.cpu_count()} cores, {memory / 2**30:.0f} GiB of memory"


def _systems() -> str:
    return f"{', '.join(sorted(SYSTEMS))}; crescendo system list says which are installed"


_LOOKS: dict[str, Callable[[], str]] = {
    "crescendo": _crescendo,
    "python": _python,
    "java": _java,
    "libraries": _libraries,
    "machine": _machine,
    "systems": _systems,
}
