"""Packages that look installed: a directory of the import path with their modules and their metadata."""

from collections.abc import Mapping
from pathlib import Path

from crescendo.model import metrics, plugins


def install_package(
    directory: Path,
    name: str,
    *,
    version: str = "0.9",
    entry_points: Mapping[str, Mapping[str, str]] | None = None,
    modules: Mapping[str, str] | None = None,
    requires: tuple[str, ...] = (),
    extras: tuple[str, ...] = (),
) -> None:
    """Write what an installer writes; `directory` must be on the import path."""
    info = directory / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    metadata = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    metadata += [f"Provides-Extra: {extra}" for extra in extras] + [f"Requires-Dist: {text}" for text in requires]
    (info / "METADATA").write_text("\n".join(metadata) + "\n")
    lines = []
    for group, given in (entry_points or {}).items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in given.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    for module, text in (modules or {}).items():
        (directory / f"{module}.py").write_text(text)


def forget_packages() -> None:
    """Make this process look for installed packages again."""
    for cached in (
        plugins._installed, plugins.offered, plugins.plugins, plugins.report_once, metrics.plugin_metrics,
    ):  # fmt: skip
        cached.cache_clear()
