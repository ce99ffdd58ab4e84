"""The verb `doctor`: is everything installed that Crescendo needs, and what do plugins add?"""

import os
import platform
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from crescendo import __version__
from crescendo.cli.options import Json
from crescendo.model.errors import ConfigError
from crescendo.pipeline.spark.java import find_java, java_version
from crescendo.systems.registry import system_names

if TYPE_CHECKING:
    from crescendo.cli.installed_plugins import PluginState

_ENOUGH_MEMORY = 2 * 2**30


class Diagnosis(Struct, frozen=True):
    """The result of one check."""

    name: str
    ok: bool
    detail: str


class PluginDiagnosis(Diagnosis, frozen=True):
    """The result of loading one plugin."""

    group: str
    plugin: str
    package: str
    state: str


def doctor(as_json: Json = False) -> int:
    """Show what is installed, what is missing, and how to get it."""
    from rich.console import Console

    from crescendo.cli.installed_plugins import plugin_states

    diagnoses = [_guarded(name, check) for name, check in _CHECKS.items()]
    diagnoses += map(_diagnosed, plugin_states())
    if as_json:
        print(msgspec.json.encode(diagnoses).decode())
    else:
        console = Console(highlight=False, markup=False)
        for diagnosis in diagnoses:
            console.print(" ✓ " if diagnosis.ok else " ✗ ", style="green" if diagnosis.ok else "red", end="")
            console.print(f"{diagnosis.name:10} {diagnosis.detail}", soft_wrap=True)
        missing = sum(not diagnosis.ok for diagnosis in diagnoses)
        console.print("everything is in place" if not missing else f"{missing} item(s) need your attention")
    return 0 if all(diagnosis.ok for diagnosis in diagnoses) else 2


def _guarded(name: str, check: Callable[[], str]) -> Diagnosis:
    try:
        return Diagnosis(name, True, check())
    except ConfigError as err:
        return Diagnosis(name, False, str(err))


def _diagnosed(found: "PluginState") -> PluginDiagnosis:
    plugin = found.plugin
    kind = plugin.group.removeprefix("crescendo.")
    detail = found.why or f"{kind} {plugin.name}, of {plugin.package}"
    return PluginDiagnosis("plugin", not found.why, detail, plugin.group, plugin.name, plugin.package, found.state)


def _crescendo() -> str:
    return f"{__version__} in {sys.prefix}"


def _python() -> str:
    return f"{platform.python_version()} on {platform.system()} {platform.machine()}"


def _java() -> str:
    java = find_java()
    return f"{java_version(java)} at {java}"


def _libraries() -> str:
    from crescendo.cli.installed_libraries import required_libraries

    return required_libraries()


def _extras() -> str:
    from crescendo.cli.installed_libraries import optional_libraries

    return optional_libraries()


def _machine() -> str:
    import psutil

    memory = psutil.virtual_memory().total
    if memory < _ENOUGH_MEMORY:
        raise ConfigError(f"{memory / 2**30:.1f} GiB of memory; Spark needs at least {_ENOUGH_MEMORY / 2**30:.0f} GiB")
    return f"{os.cpu_count()} cores, {memory / 2**30:.0f} GiB of memory"


def _systems() -> str:
    return f"{', '.join(system_names())}; crescendo system list shows which are installed"


_CHECKS: dict[str, Callable[[], str]] = {
    "crescendo": _crescendo,
    "python": _python,
    "java": _java,
    "libraries": _libraries,
    "extras": _extras,
    "machine": _machine,
    "systems": _systems,
}
