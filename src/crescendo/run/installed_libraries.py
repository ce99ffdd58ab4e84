"""Are the libraries that Crescendo's own metadata requires installed, in versions that it accepts?

What is required is said once, in pyproject.toml; installing Crescendo copies it into the metadata that is read here.
"""

from importlib.metadata import PackageNotFoundError, metadata, requires, version

from packaging.requirements import Requirement

from crescendo.model.errors import ConfigError

DISTRIBUTION = "crescendo-lab"


def required_libraries() -> str:
    """Every required library with its version. Raises ConfigError that names those that are missing or too old."""
    needed = _requirements("")
    faults = [fault for fault in map(_fault, needed) if fault]
    if faults:
        raise ConfigError(f"{', '.join(faults)}; reinstall Crescendo: pip install {DISTRIBUTION}")
    return ", ".join(f"{requirement.name} {version(requirement.name)}" for requirement in needed)


def optional_libraries() -> str:
    """Every extra, and what it lacks on this machine. Nothing here is an error."""
    base = {str(requirement) for requirement in _requirements("")}
    lines = []
    for extra in metadata(DISTRIBUTION).get_all("Provides-Extra") or ():
        added = [requirement for requirement in _requirements(extra) if str(requirement) not in base]
        faults = [fault for fault in map(_fault, added) if fault]
        cure = f" (pip install '{DISTRIBUTION}[{extra}]')"
        lines.append(f"{extra}: {', '.join(faults) + cure if faults else 'installed'}")
    return "; ".join(lines) or "none"


def _requirements(extra: str) -> list[Requirement]:
    """What this extra requires on this machine, including what Crescendo requires without extras."""
    try:
        given = [Requirement(text) for text in requires(DISTRIBUTION) or ()]
    except PackageNotFoundError:
        raise ConfigError(
            f"{DISTRIBUTION} is not installed, so its requirements are not known; run pip install in its source tree"
        ) from None
    return [one for one in given if one.marker is None or one.marker.evaluate({"extra": extra})]


def _fault(requirement: Requirement) -> str | None:
    try:
        found = version(requirement.name)
    except PackageNotFoundError:
        return f"{requirement.name} missing"
    if not requirement.specifier.contains(found, prereleases=True):
        return f"{requirement.name} {found} is not {requirement.specifier}"
    return None
