"""Does the page about security name every requirement, and only tests that exist?"""

import re
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = TESTS.parents[1] / "docs" / "web-security.md"
LEVEL_1 = {
    "2.1": 12, "2.2": 3, "2.3": 1, "2.5": 6, "2.7": 4, "2.8": 1, "3.1": 1, "3.2": 3, "3.3": 2, "3.4": 5, "3.7": 1,
    "4.1": 4, "4.2": 2, "4.3": 2, "5.1": 5, "5.2": 8, "5.3": 10, "5.5": 4, "6.2": 1, "7.1": 2, "7.4": 1, "8.2": 3,
    "8.3": 4, "9.1": 3, "10.3": 3, "11.1": 5, "12.1": 1, "12.3": 5, "12.4": 2, "12.5": 2, "12.6": 1, "13.1": 2,
    "13.2": 3, "13.3": 1, "14.2": 3, "14.3": 2, "14.4": 7, "14.5": 3,
}  # fmt: skip
"""Section of ASVS 4.0.3 -> how many requirements of level 1 it has."""


def _rows() -> list[list[str]]:
    lines = [line for line in PAGE.read_text().splitlines() if re.match(r"\| \d", line)]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_requirement_of_level_1_has_its_line() -> None:
    found = [row[0] for row in _rows()]
    assert len(found) == len(set(found)) == 128
    assert {
        section: sum(name.rpartition(".")[0] == section for name in found) for section in LEVEL_1
    } == LEVEL_1  # fmt: skip
    assert {row[2] for row in _rows()} == {"yes", "partly", "no", "does not apply"}


def test_every_test_that_the_page_names_exists() -> None:
    source = "".join(path.read_text() for path in TESTS.rglob("test_*.py"))
    known = set(re.findall(r"def test_(\w+)", source))
    for name, _, holds, _, shown in _rows():
        if holds in {"yes", "partly"} or shown != "–":
            for words in shown.split("; "):
                assert re.sub(r"\W+", "_", words) in known, f"{name}: {words}"


def test_the_counts_in_the_introduction_are_those_of_the_table() -> None:
    states = [row[2] for row in _rows()]
    sentence = (
        f"{states.count('yes')} hold, {states.count('partly')} in part, {states.count('no')} do not, "
        f"{states.count('does not apply')} do not apply"
    )
    assert sentence in PAGE.read_text()
