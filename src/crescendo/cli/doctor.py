"""The verb `doctor`: is everything installed that Crescendo needs, and what do plugins add?"""

import os
import platform
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from msgspec import Struct

from crescendo import __version__
from crescendo.cli.options import Json
from crescendo.model.errors import ConfigError
from crescendo.pipeline.spark.java import find_java, java_version
from crescendo.systems.base import SystemKind
from crescendo.systems.registry import all_kinds

if TYPE_CHECKING:
    from crescendo.cli.installed_plugins import PluginState

_ENOUGH_MEMORY = 2 * 2**30


class Diagnosis(Struct, frozen=True):
    """The result of one check."""

    name: str
    ok: bool
    detail: str


class SystemDiagnosis(Diagnosis, frozen=True):
    """Whether one kind of system is installed. None is needed: a run may use another, or a URL."""

    kind: str


class PluginDiagnosis(Diagnosis, frozen=True):
    """The result of loading one plugin."""

    group: str
    plugin: str
    package: str
    state: str


def doctor(
    as_json: Json = False,
    clean: Annotated[
        bool,
        typer.Option("--clean", help="First remove what killed runs left: hosts of a lab, disks and limits of faults."),
    ] = False,
) -> int:
    """Show what is installed, what is missing, and how to get it."""
    from rich.console import Console

    from crescendo.cli.installed_plugins import plugin_states

    if clean:
        remove_leftovers()
    diagnoses = [_guarded(name, check) for name, check in _CHECKS.items()]
    diagnoses += map(_system, all_kinds())
    diagnoses += map(_diagnosed, plugin_states())
    if as_json:
        print(msgspec.json.encode(diagnoses).decode())
    else:
        console = Console(highlight=False, markup=False)
        for diagnosis in diagnoses:
            mark, colour = _mark(diagnosis)
            console.print(f" {mark} ", style=colour, end="")
            console.print(f"{diagnosis.name:10} {diagnosis.detail}", soft_wrap=True)
        console.print(_conclusion(diagnoses))
    return 2 if any(map(_needs_attention, diagnoses)) else 0


def remove_leftovers() -> None:
    """Remove what killed runs left, as their own guardians would have."""
    from crescendo.faults.control_groups import remove_abandoned
    from crescendo.faults.loop_disk import remove_abandoned_disks
    from crescendo.lab.ownership import end_abandoned

    for name, pid in end_abandoned():
        print(f"ended {name} ({pid}), which a killed lab left", file=sys.stderr)
    for mount_point in remove_abandoned_disks():
        print(f"unmounted {mount_point}, the disk of a killed run", file=sys.stderr)
    for group in remove_abandoned():
        print(f"removed {group}, the control group of a killed run", file=sys.stderr)


def _needs_attention(diagnosis: Diagnosis) -> bool:
    return not diagnosis.ok and not isinstance(diagnosis, SystemDiagnosis)


def _mark(diagnosis: Diagnosis) -> tuple[str, str]:
    if diagnosis.ok:
        return "✓", "green"
    return ("✗", "red") if _needs_attention(diagnosis) else ("–", "yellow")


def _conclusion(diagnoses: list[Diagnosis]) -> str:
    if needed := sum(map(_needs_attention, diagnoses)):
        return f"{needed} item(s) need your attention"
    absent = [found.kind for found in diagnoses if isinstance(found, SystemDiagnosis) and not found.ok]
    return (
        f"everything that Crescendo needs is in place; not installed: {', '.join(absent)}"
        if absent
        else ("everything is in place")
    )


def _system(kind: SystemKind) -> SystemDiagnosis:
    try:
        found = kind.find(None, None)
    except ConfigError as err:
        return SystemDiagnosis("system", False, f"{kind.name}: {err}", kind.name)
    return SystemDiagnosis("system", True, f"{kind.name} {found.version} ({found.origin})", kind.name)


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


def _lab() -> str:
    from crescendo.lab.namespaces import is_rootless, why_not_permitted

    reason = why_not_permitted()
    return f"not available: {reason}" if reason else f"hosts as namespaces{', rootless' if is_rootless() else ''}"


def _machine() -> str:
    import psutil

    memory = psutil.virtual_memory().total
    if memory < _ENOUGH_MEMORY:
        raise ConfigError(f"{memory / 2**30:.1f} GiB of memory; Spark needs at least {_ENOUGH_MEMORY / 2**30:.0f} GiB")
    return f"{os.cpu_count()} cores, {memory / 2**30:.0f} GiB of memory"


_CHECKS: dict[str, Callable[[], str]] = {
    "crescendo": _crescendo,
    "python": _python,
    "java": _java,
    "libraries": _libraries,
    "extras": _extras,
    "lab": _lab,
    "machine": _machine,
}
