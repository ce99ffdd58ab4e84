"""What do README, docs and experiment files tell a reader to type or to write?

Commands are the lines that begin with `crescendo` or `python -c`, in code blocks, in the comments of experiment files,
and in files for CI systems; a line that ends with a backslash goes on. Experiments are the YAML blocks with a workload.
A comment before a block, `<!-- test: --seconds 0.1 -->`, gives more arguments to its commands when they are tested;
`<!-- test: not run, because … -->` says that they are only parsed. In an experiment file it is a line `# test: …`.
"""

import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs/studies").glob("*.md"))]
CI_FILES = sorted((ROOT / "examples/ci").glob("*.yml"))
_FILES = sorted((ROOT / "experiments").glob("*/*.yml"))
CAMPAIGNS = [path for path in _FILES if re.search(r"^factors:", path.read_text(encoding="utf-8"), re.MULTILINE)]
EXPERIMENTS = [path for path in _FILES if path not in CAMPAIGNS]
_BLOCK = re.compile(r"(?:^<!-- test: ([^>]*) -->\n+)?^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
NOT_RUN = "not run, "
_PROMPT = re.compile(r"^(?:\$ )?(?:crescendo|python -c) ")
_MARKER = re.compile(r"^test: (.*)")
_EXPERIMENT = re.compile(r"^(workload|clients):", re.MULTILINE)


class Documented(NamedTuple):
    """One command or experiment, and where it stands."""

    where: str
    text: str
    marker: str = ""  # what a test adds to it, or why it is not run

    @property
    def is_python(self) -> bool:
        return self.text.startswith("python ")

    @property
    def words(self) -> list[str]:
        """The arguments, without redirections, and without an ellipsis: the reader's own arguments stand there."""
        words = shlex.split(self.text, comments=True)[1:]
        end = next((index for index, word in enumerate(words) if word in {">", "|", "&&"}), len(words))
        return [word for word in words[:end] if word != "…"]


def commands() -> list[Documented]:
    found = []
    for page in PAGES:
        for marker, language, block in _BLOCK.findall(page.read_text(encoding="utf-8")):
            if language in {"", "sh", "bash", "console"}:
                found += _commands(page, block.splitlines(), marker)
    for path in _FILES:
        lines = [line.removeprefix("#").strip() for line in path.read_text(encoding="utf-8").splitlines()]
        found += _commands(path, lines)
    return found


def ci_commands() -> list[Documented]:
    """The commands that the examples for CI systems run."""
    written = [(path, path.read_text(encoding="utf-8")) for path in CI_FILES]
    for page in PAGES:
        for _, language, block in _BLOCK.findall(page.read_text(encoding="utf-8")):
            if language == "yaml" and " crescendo " in block and not _EXPERIMENT.search(block):
                written.append((page, block))
    found = []
    for path, text in written:
        document = yaml.safe_load(text)
        # A step may be the body of a loop.
        lines = [re.sub(r"^.*?(?=(?<![./])\bcrescendo )|\|\|.*", "", line) for line in _strings(document)]
        found += _commands(path, lines)
    return found


def yaml_experiments() -> list[Documented]:
    return [
        Documented(str(page.relative_to(ROOT)), block)
        for page in PAGES
        for _, language, block in _BLOCK.findall(page.read_text(encoding="utf-8"))
        if language == "yaml" and _EXPERIMENT.search(block)
    ]


def _strings(value: Any) -> list[str]:
    """Every line of text in a document."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [line for each in value for line in _strings(each)]
    return value.splitlines() if isinstance(value, str) else []


def _commands(path: Path, lines: list[str], marker: str = "") -> list[Documented]:
    found: list[Documented] = []
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines()
    for line in joined:
        if (given := _MARKER.match(line)) is not None:
            marker = given[1]
        if _PROMPT.match(line.strip()):
            found.append(Documented(str(path.relative_to(ROOT)), line.strip().removeprefix("$ "), marker))
    return found
