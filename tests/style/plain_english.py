"""Where does the text of the project fall back into translated English?

`python tests/style/plain_english.py` lists every place. Reads comments, string literals and names of tests in Python,
templates, scripts, SQL and experiments as they are, and pages of documentation; other identifiers and code blocks are
not text.
"""

import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

PATTERNS = {
    "is no": re.compile(
        r"\b(?:is|are|was|were) no (?!(?:longer|larger|more|other|less|fewer|such|need|different)\b)[a-z]"
    ),
    "so many": re.compile(r"\bso (?:many|few)\b(?! that\b)"),
    "dear": re.compile(r"\bdear(?:er|est)?\b", re.IGNORECASE),
    "told": re.compile(r"\b(?:told|tells? of|untold)\b", re.IGNORECASE),
    "one X a Y": re.compile(
        r"\bone (?:row|line|file|page|job|table|module|message|request|process|connection|folder|part|verb|byte|frame"
        r"|entry|sample|chart|value|number|report) an? [a-z]+\b"
    ),
    "sentence with Who": re.compile(r"(?:^|[.!?:]\s+|\"\"\"|# )(?:Who|Whoever) (?!\w+[^.\n]*\?)[a-z]", re.MULTILINE),
    "good-bye": re.compile(r"\b(?:good-?bye|farewell|last words)\b", re.IGNORECASE),
}

ALLOWED = {
    # pattern: texts that may stand, each a phrase that contains the match
    "is no": ("there is no ", "there are no ", "there was no ", "there were no "),
    "told": (
        '"untold"',  # a statistic in recordings
        "told apart",
        "get it is told that",  # in a migration, which is never edited
    ),
}


class Finding(NamedTuple):
    path: Path
    line: int
    pattern: str
    text: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.pattern!r}: {self.text.strip()}"


FOLDERS = ("src", "tests", "bench", "examples", "experiments", "docs")
THE_PATTERNS_THEMSELVES = ROOT / "tests" / "style"
FOREIGN = ROOT / "tests" / "topology" / "samples"  # files of another program, as they are


def findings() -> Iterator[Finding]:
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*"))] + sorted(ROOT.glob("*.md"))
    for path in files:
        if path.suffix in READERS and not {THE_PATTERNS_THEMSELVES, FOREIGN} & set(path.parents):
            yield from findings_in_file(path)


def findings_in_file(path: Path) -> Iterator[Finding]:
    content = path.read_text()
    raw = _with_spaces(content)
    if not any(pattern.search(raw) for pattern in PATTERNS.values()):
        return  # nearly always; splitting Python into tokens is slow
    for number, text in READERS[path.suffix](content):
        for name in findings_in_text(text):
            yield Finding(path, number, name, text)


def _with_spaces(source: str) -> str:
    """With the names of tests as sentences."""
    return re.sub(r"\btest_\w+", lambda match: "# " + _sentence(match[0]), source)


def _sentence(test_name: str) -> str:
    return test_name.removeprefix("test_").replace("_", " ").capitalize()


def findings_in_text(text: str) -> list[str]:
    """Names of the patterns that this line contains."""
    return [
        name
        for name, pattern in PATTERNS.items()
        for match in pattern.finditer(text)
        if not any(phrase in _around(text, match) for phrase in ALLOWED.get(name, ()))
    ]


def _around(text: str, match: re.Match[str]) -> str:
    return text[max(0, match.start() - 12) : match.end() + 12].lower()


def _python_text(source: str) -> Iterator[tuple[int, str]]:
    """Comments, string literals and names of tests, line by line."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in {tokenize.COMMENT, tokenize.STRING} or tokenize.tok_name[token.type] == "FSTRING_MIDDLE":
            for offset, line in enumerate(token.string.splitlines()):
                yield token.start[0] + offset, line
        elif token.type == tokenize.NAME and token.string.startswith("test_"):
            yield token.start[0], _sentence(token.string)


def _prose(page: str) -> Iterator[tuple[int, str]]:
    """Everything outside code blocks."""
    in_code = False
    for number, line in enumerate(page.splitlines(), 1):
        if line.startswith("```"):
            in_code = not in_code
        elif not in_code:
            yield number, re.sub(r"`[^`]*`", "", line)


def _lines(content: str) -> Iterator[tuple[int, str]]:
    return enumerate(content.splitlines(), 1)


READERS = {".py": _python_text, ".md": _prose} | dict.fromkeys((".j2", ".js", ".sql", ".yml"), _lines)
"""Suffix -> the text of such a file, by lines."""


def main() -> int:
    count = 0
    for finding in findings():
        print(finding)
        count += 1
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
