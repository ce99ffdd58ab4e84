"""Which wheels does a host of a cluster need, and where do they come from?

From this very installation: the package that is running, and the installed versions of what its extra [peer] requires,
packed into wheels again. So every host gets what the conductor has, and no registry is needed. Wheels of dependencies
are packed once and kept in a cache. Or from a directory of wheels that the user names, for other kinds of machines.
"""

import csv
import hashlib
import io
import os
import platform
import sys
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.tags import sys_tags
from packaging.utils import canonicalize_name

import crescendo
from crescendo.model.errors import ConfigError

PACKAGE, EXTRA = "crescendo-lab", "peer"
_LEFT_OUT = {"INSTALLER", "REQUESTED", "RECORD", "direct_url.json", "RECORD.jws", "RECORD.p7s"}
_EPOCH = (1980, 1, 1, 0, 0, 0)  # equal contents make equal wheels


@dataclass(frozen=True)
class Wheelhouse:
    """Wheels to install, what to ask pip for, and a name that changes with the contents."""

    name: str
    wheels: tuple[Path, ...]
    requirements: tuple[str, ...]
    python: str  # major.minor of the Python that they are for; empty: whatever pip accepts
    machine: str


def given_wheelhouse(directory: Path) -> Wheelhouse:
    """The wheels of a directory, as they are."""
    wheels = tuple(sorted(directory.glob("*.whl")))
    for needed in ("crescendo_lab-", "pip-"):
        if not any(wheel.name.startswith(needed) for wheel in wheels):
            raise ConfigError(f"{directory}: has no wheel {needed}*.whl; build one with pip wheel --wheel-dir")
    name = hashlib.sha256("\n".join(f"{wheel.name} {_digest(wheel)}" for wheel in wheels).encode()).hexdigest()[:16]
    return Wheelhouse(name, wheels, tuple(map(str, _peer_requirements(_installed(PACKAGE)))), "", "")


def wheelhouse_name() -> str:
    """The name that `own_wheelhouse` will have, without packing anything."""
    return _name(peer_distributions())


def own_wheelhouse(directory: Path | None = None) -> Wheelhouse:
    """Pack what runs here. Wheels of dependencies come from the cache if they are there."""
    directory = directory or _cache_directory()
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    needed = peer_distributions()
    wheels = [_packed(one, directory) for one in (*needed, _installed("pip"))]
    wheels.append(_pack(directory / f"crescendo_lab-{crescendo.__version__}-py3-none-any.whl", _own_files()))
    pins = tuple(f"{one.metadata['Name']}=={one.version}" for one in needed)
    return Wheelhouse(
        _name(needed), tuple(wheels), pins, "{}.{}".format(*sys.version_info[:2]), platform.machine()
    )  # fmt: skip


def peer_distributions() -> list[Distribution]:
    """What the extra requires, with all that those require in turn, as installed here."""
    found: dict[str, Distribution] = {}
    waiting = [(requirement, frozenset(requirement.extras)) for requirement in _peer_requirements(_installed(PACKAGE))]
    while waiting:
        requirement, extras = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in found and not extras:
            continue
        found[name] = _installed(requirement.name)
        for text in found[name].requires or ():
            inner = Requirement(text)
            if _applies(inner, extras or frozenset({""})) and canonicalize_name(inner.name) not in found:
                waiting.append((inner, frozenset(inner.extras)))
    return [found[name] for name in sorted(found)]


def _peer_requirements(package: Distribution) -> list[Requirement]:
    every = [Requirement(text) for text in package.requires or ()]
    of_peer = [one for one in every if "extra" in str(one.marker or "") and _applies(one, frozenset({EXTRA}))]
    if not of_peer:
        raise ConfigError(f"{PACKAGE} was installed without the list of its extra [{EXTRA}]; install it again")
    return of_peer


def _applies(requirement: Requirement, extras: Iterable[str]) -> bool:
    return requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in extras)


def _installed(name: str) -> Distribution:
    try:
        return distribution(name)
    except PackageNotFoundError:
        raise ConfigError(f"{name} is not installed in {sys.prefix}; python -m pip install {name}") from None


def _name(needed: list[Distribution]) -> str:
    own = hashlib.sha256()
    for name, content in _own_files():
        own.update(f"{name} {hashlib.sha256(content).hexdigest()}\n".encode())
    for one in needed:
        own.update(f"{one.metadata['Name']} {one.version}\n".encode())
    return own.hexdigest()[:16]


def _own_files() -> Iterator[tuple[str, bytes]]:
    """The package as it runs now, also of an editable installation, and its metadata."""
    root = Path(crescendo.__file__).parent
    yield from _tree(root, "crescendo")
    if not (root / "java").is_dir() and (java := root.parents[1] / "java").is_dir():
        yield from _tree(java, "crescendo/java")  # as the wheel of a release has it
    installed = _installed(PACKAGE)
    info = f"crescendo_lab-{crescendo.__version__}.dist-info"
    yield f"{info}/METADATA", (installed.read_text("METADATA") or "").encode()
    yield f"{info}/entry_points.txt", (installed.read_text("entry_points.txt") or "").encode()
    yield f"{info}/WHEEL", b"Wheel-Version: 1.0\nGenerator: crescendo\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def _tree(root: Path, name: str) -> Iterator[tuple[str, bytes]]:
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        if path.is_file() and not {"__pycache__", "target"} & set(parts):
            yield "/".join((name, *parts)), path.read_bytes()


def _packed(one: Distribution, directory: Path) -> Path:
    """The wheel of an installed distribution, from the cache or packed now."""
    wheel = one.read_text("WHEEL") or ""
    tags = [line.partition(":")[2].strip() for line in wheel.splitlines() if line.startswith("Tag:")]
    usable = [tag for tag in tags if tag in _tags_of_this_machine()]
    if not usable:
        raise ConfigError(f"{one.metadata['Name']} was not installed from a wheel; install it again with pip")
    name = canonicalize_name(one.metadata["Name"]).replace("-", "_")
    target = directory / f"{name}-{one.version}-{usable[0]}.whl"
    return target if target.exists() else _pack(target, _files_of(one))


@cache
def _tags_of_this_machine() -> frozenset[str]:
    return frozenset(map(str, sys_tags()))


def _files_of(one: Distribution) -> Iterator[tuple[str, bytes]]:
    for file in one.files or ():
        path = Path(str(file.locate()))
        outside = ".." in file.parts or file.is_absolute()  # scripts, which pip writes again from the entry points
        if not outside and file.name not in _LEFT_OUT and file.suffix != ".pyc" and path.is_file():
            yield file.as_posix(), path.read_bytes()


def _pack(target: Path, files: Iterable[tuple[str, bytes]]) -> Path:
    record, info = io.StringIO(), ""
    rows = csv.writer(record, lineterminator="\n")
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for name, content in files:
                archive.writestr(zipfile.ZipInfo(name, _EPOCH), content, zipfile.ZIP_DEFLATED, 1)
                rows.writerow((name, "", len(content)))
                if name.endswith(".dist-info/METADATA"):
                    info = name.rpartition("/")[0]
            rows.writerow((f"{info}/RECORD", "", ""))
            archive.writestr(zipfile.ZipInfo(f"{info}/RECORD", _EPOCH), record.getvalue())
        partial.replace(target)
    except OSError as err:
        raise ConfigError(f"{target}: cannot be written: {err.strerror}") from err
    finally:
        partial.unlink(missing_ok=True)
    return target


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "crescendo" / "wheels"
