"""Which experiments are there, and how are they changed?

One YAML file per experiment, exactly as its author wrote it; an archived one is moved, never deleted. Texts go through
the same reader as the files of the command line, so the messages are the same. The files that an experiment names must
lie beside it, unless the server was started with --any-file: a browser must not reach further than its owner meant.
"""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from crescendo.model.errors import ConfigError
from crescendo.model.experiment import Experiment
from crescendo.model.experiment_file import experiment_from, name_of, parse_mapping, to_document
from crescendo.model.url_files import FILE_OPTIONS, files_of_url, with_files_at
from crescendo.record.documents import write_atomically
from crescendo.web.web_directory import NotFoundError, WebDirectory, child_of

MAX_TEXT_CHARS = 200_000
_KEYS = "name, workload and phases"
_SUFFIX = ".yml"
_CAMPAIGN = re.compile(r"^(experiment|factors):", re.MULTILINE)  # keys of a file that plans many runs
_FOR_THE_COMMAND_LINE = ("crescendo ", "test: ")  # comments of a file that say how it is run, and how that is tested
_FILE_KEYS = ("file", "topology", "certificate", "config", *FILE_OPTIONS)


@dataclass(frozen=True)
class StoredExperiment:
    """An experiment file: its name, its text, and whether it is archived."""

    name: str
    text: str
    archived: bool
    modified_ns: int


@dataclass(frozen=True)
class ShippedExperiment:
    """An experiment that comes with Crescendo, to be cloned."""

    id: str  # folder--name
    folder: str
    name: str
    about: str
    text: str
    path: Path


def read_text(text: str, directory: Path, source: str, *, any_file: bool = False) -> Experiment:
    """The experiment with this text. ConfigError as on the command line, or if it names a file elsewhere."""
    if len(text) > MAX_TEXT_CHARS:
        raise ConfigError(f"{source}: {len(text):,} characters are too many; the limit is {MAX_TEXT_CHARS:,}")
    refuse_aliases(text, source)
    document = parse_mapping(text, source, _KEYS)
    place_files(document, FilePlaces(directory, source, any_file))
    return experiment_from(document, source=source, default_name=name_of(Path(source)))


def refuse_aliases(text: str, source: str) -> None:
    """A few lines of YAML with aliases can stand for more values than memory holds."""
    try:
        aliased = any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text, yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError):
        return  # the reader explains it
    if aliased:
        raise ConfigError(f"{source}: aliases such as *name are not accepted here; write the values out")


@dataclass(frozen=True)
class FilePlaces:
    """Where the files that an experiment names may lie."""

    directory: Path
    source: str
    any_file: bool

    def place(self, key: str, named: str) -> str:
        path = self.directory / named
        if not self.any_file and not path.resolve().is_relative_to(self.directory.resolve()):
            raise ConfigError(
                f"{self.source}: {key}: {named} lies outside {self.directory}; copy it there, or start the server "
                "with --any-file"
            )
        return str(path)


def place_files(node: Any, places: FilePlaces) -> None:
    """Replace every path in a document by where it leads, before anything is opened."""
    for key, value in list(node.items()) if isinstance(node, dict) else list(enumerate(node)):
        if isinstance(value, dict | list):
            place_files(value, places)
        elif isinstance(value, str):
            if key == "home" and not places.any_file:
                raise ConfigError(
                    f"{places.source}: system.home names programs of this machine; start the server with --any-file"
                )
            if (key, value) == ("do", "command") and not places.any_file:
                raise ConfigError(
                    f"{places.source}: faults: `command` runs programs here; start the server with --any-file"
                )
            if key in _FILE_KEYS:
                node[key] = places.place(str(key), value)
            elif named := files_of_url(value):
                node[key] = with_files_at(value, {file: places.place(str(key), file) for file in named})


class ExperimentStore:
    """The experiments of one server."""

    def __init__(self, directory: WebDirectory, *, any_file: bool = False) -> None:
        self._directory = directory
        self.any_file = any_file

    def all(self, *, archived: bool = False) -> list[StoredExperiment]:
        folder = self._directory.archive if archived else self._directory.experiments
        found = [self._read(path, archived) for path in folder.glob(f"*{_SUFFIX}")]
        return sorted(filter(None, found), key=lambda one: one.name)

    def get(self, name: str) -> StoredExperiment:
        for folder, archived in ((self._directory.experiments, False), (self._directory.archive, True)):
            found = self._read(child_of(folder, name, "experiment", _SUFFIX), archived)
            if found is not None:
                return found
        raise NotFoundError(f"no experiment is called {name!r}; /experiments lists them")

    def exists(self, name: str) -> bool:
        try:
            self.get(name)
        except NotFoundError:
            return False
        return True

    def check(self, text: str, source: str = "experiment") -> Experiment:
        """The experiment that a text describes."""
        return read_text(text, self._directory.experiments, source, any_file=self.any_file)

    def redacted_text(self, stored: StoredExperiment) -> str:
        """The text without passwords, for people who may only look."""
        experiment = self.check(stored.text, f"{stored.name}.yml")
        return yaml.safe_dump(to_document(experiment.redacted()), sort_keys=False, allow_unicode=True)

    def save(self, text: str, *, replacing: str | None = None) -> str:
        """Keep a text under the name that it gives, and return that. ConfigError if it is not an experiment."""
        experiment = self.check(text)
        name = experiment.name
        path = child_of(self._directory.experiments, name, "experiment", _SUFFIX)
        if name != replacing and (path.exists() or self._archived(name).exists()):
            raise ConfigError(f"name: an experiment is called {name!r} already; choose another name")
        write_atomically(path, text.encode(), mode=0o600)
        if replacing is not None and replacing != name:
            child_of(self._directory.experiments, replacing, "experiment", _SUFFIX).unlink(missing_ok=True)
        return name

    def clone(self, name: str) -> str:
        """A copy under the next free name; a shipped one is given with its id."""
        shipped = next((one for one in shipped_experiments() if one.id == name), None)
        text = self.get(name).text if shipped is None else shipped.text
        if shipped is not None:
            self._copy_topology(shipped)
        experiment = self.check(text, "experiment" if shipped is None else shipped.path.name)
        new = self._free_name(experiment.name)
        write_atomically(
            child_of(self._directory.experiments, new, "experiment", _SUFFIX), renamed(text, new).encode(), mode=0o600
        )
        return new

    def set_archived(self, name: str, archived: bool) -> None:
        stored = self.get(name)
        if stored.archived == archived:
            return
        active = child_of(self._directory.experiments, name, "experiment", _SUFFIX)
        source, target = (active, self._archived(name)) if archived else (self._archived(name), active)
        source.rename(target)

    def _archived(self, name: str) -> Path:
        return child_of(self._directory.archive, name, "experiment", _SUFFIX)

    def _free_name(self, name: str) -> str:
        stem = name[:90]
        for number in range(1, 1000):
            candidate = stem if number == 1 else f"{stem}-{number}"
            active = child_of(self._directory.experiments, candidate, "experiment", _SUFFIX)
            if not active.exists() and not self._archived(candidate).exists():
                return candidate
        raise ConfigError(f"{name}: there are a thousand copies; archive does not free names, so choose one yourself")

    def _copy_topology(self, shipped: ShippedExperiment) -> None:
        """Beside the copy, so that it can be run and edited."""
        named = parse_mapping(shipped.text, shipped.path.name, _KEYS).get("topology")
        if isinstance(named, str):
            target = self._directory.experiments / named
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(shipped.path.parent / named, target)

    @staticmethod
    def _read(path: Path, archived: bool) -> StoredExperiment | None:
        try:
            return StoredExperiment(path.stem, path.read_text(encoding="utf-8"), archived, path.stat().st_mtime_ns)
        except (OSError, UnicodeDecodeError):
            return None


def renamed(text: str, name: str) -> str:
    """The text with another name, and everything else as it was written."""
    lines = text.splitlines(keepends=True)
    for number, line in enumerate(lines):
        if line.startswith("name:"):
            lines[number] = f"name: {name}\n"
            return "".join(lines)
    return f"name: {name}\n{text}"


def shipped_experiments() -> list[ShippedExperiment]:
    """The single experiments that come with Crescendo."""
    return [one for one in _shipped_files() if not _CAMPAIGN.search(one.text)]


def shipped_campaigns() -> list[ShippedExperiment]:
    """The campaigns that come with Crescendo: many runs each."""
    return [one for one in _shipped_files() if _CAMPAIGN.search(one.text)]


def _shipped_files() -> list[ShippedExperiment]:
    """Those of the package, or of the checkout that it runs from."""
    package = Path(__file__).parents[1]
    for folder in (package / "experiments", package.parents[1] / "experiments"):
        if folder.is_dir():
            paths = sorted(folder.glob("*/*.yml"), key=lambda path: (path.parent.name != "quick", path))
            return [_shipped(path) for path in paths]
    return []


def _shipped(path: Path) -> ShippedExperiment:
    text = path.read_text(encoding="utf-8")
    comments = []
    for line in text.splitlines():
        if not line.startswith("#") or not line.lstrip("# ").strip():
            break
        if not line.lstrip("# ").startswith(_FOR_THE_COMMAND_LINE):
            comments.append(line.lstrip("# ").strip())
    about = " ".join(comments)
    return ShippedExperiment(f"{path.parent.name}--{path.stem}", path.parent.name, path.stem, about, text, path)
