"""Is everything installed that Crescendo needs, what may be installed besides, and what do plugins add?

Looks and reports; the only change that it makes, on request, is to remove what killed runs left. Prints nothing.
"""

import os
import platform
import sys
from collections.abc import Callable, Container, Iterator

from msgspec import Struct

from crescendo import __version__
from crescendo.model.errors import ConfigError
from crescendo.pipeline.spark.java import find_java, java_version
from crescendo.run.installed_libraries import optional_libraries, required_libraries
from crescendo.systems.base import SystemKind
from crescendo.systems.registry import all_kinds

_ENOUGH_MEMORY = 2 * 2**30


class Diagnosis(Struct, frozen=True):
    """The result of one check."""

    name: str
    ok: bool
    detail: str

    @property
    def needs_attention(self) -> bool:
        return not self.ok


class SystemDiagnosis(Diagnosis, frozen=True):
    """Whether one kind of system is installed. None is needed: a run may use another, or a URL."""

    kind: str

    @property
    def needs_attention(self) -> bool:
        return False


class PluginDiagnosis(Diagnosis, frozen=True):
    """The result of loading one plugin."""

    group: str
    plugin: str
    package: str
    state: str


def diagnose(own_verbs: Container[str]) -> list[Diagnosis]:
    """Crescendo and what it needs, then the systems, then the plugins."""
    checked = [_guarded(name, check) for name, check in _CHECKS.items()]
    return [*checked, *map(_system, all_kinds()), *_plugins(own_verbs)]


def remove_leftovers() -> list[str]:
    """Remove what killed runs left, as their own guardians would have; a sentence for each."""
    from crescendo.faults.control_groups import remove_abandoned
    from crescendo.faults.loop_disk import remove_abandoned_disks
    from crescendo.lab.ownership import end_abandoned

    return [
        *(f"ended {name} ({pid}), which a killed lab left" for name, pid in end_abandoned()),
        *(f"unmounted {mount_point}, the disk of a killed run" for mount_point in remove_abandoned_disks()),
        *(f"removed {group}, the control group of a killed run" for group in remove_abandoned()),
    ]


def _system(kind: SystemKind) -> SystemDiagnosis:
    try:
        found = kind.find(None, None)
    except ConfigError as err:
        return SystemDiagnosis("system", False, f"{kind.name}: {err}", kind.name)
    return SystemDiagnosis("system", True, f"{kind.name} {found.version} ({found.origin})", kind.name)


def _plugins(own_verbs: Container[str]) -> Iterator[PluginDiagnosis]:
    from crescendo.run.installed_plugins import plugin_states

    for plugin, state, why in plugin_states(own_verbs):
        detail = why or f"{plugin.group.removeprefix('crescendo.')} {plugin.name}, of {plugin.package}"
        yield PluginDiagnosis("plugin", not why, detail, plugin.group, plugin.name, plugin.package, state)


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
    "libraries": required_libraries,
    "extras": optional_libraries,
    "lab": _lab,
    "machine": _machine,
}
