"""Do the pages about packages and words name what exists?"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "crescendo"
RIGHT_ELSEWHERE = {("control", "fail")}
"""Old names that are right for something else: a peer that says that it failed, as opposed to one that is failed."""
_DEFINITION = re.compile(r"^ *(?:async )?(?:class|def) (\w+)", re.MULTILINE)


def _first_cells(page: str, *, below: str = "", above: str = "\0") -> list[list[str]]:
    """The rows of the tables of a page, as cells, in a part of it."""
    text = (ROOT / "docs" / page).read_text().partition(below)[2] if below else (ROOT / "docs" / page).read_text()
    lines = text.partition(above)[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]


def test_every_package_is_described_and_every_described_package_exists() -> None:
    packages = {str(path.parent.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py")} - {"."}
    described = [name for cells in _first_cells("whats-here.md") for name in re.findall(r"`([\w/]+)`", cells[0])]
    assert packages - set(described) == set()
    assert [
        name for name in described if not (PACKAGE / name).is_dir() and not (PACKAGE / f"{name}.py").is_file()
    ] == []
    assert len(described) == len(set(described))


def test_words_are_in_alphabetical_order_each_once_with_a_meaning() -> None:
    rows = _first_cells("glossary.md", above="## Names that were replaced")[1:]
    words = [cells[0].lower() for cells in rows]
    assert words == sorted(set(words))
    assert all(len(cells) == 2 and cells[1] for cells in rows)


def test_the_modules_that_replaced_others_exist() -> None:
    rows = _first_cells("glossary.md", below="Modules:", above="Classes and functions")[1:]
    found = [name for _, new in rows for name in re.findall(r"`([\w.]+)`", new)]
    assert len(found) > 150
    assert [name for name in found if not (PACKAGE / f"{name.replace('.', '/')}.py").is_file()] == []


def test_the_classes_that_replaced_others_exist() -> None:
    rows = _first_cells("glossary.md", below="Classes and functions")[1:]
    source = "\n".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    defined = set(re.findall(r"^ *(?:async )?(?:class|def) (\w+)|^ *(\w+)(?:: \w+)? = ", source, re.MULTILINE))
    names = {name for pair in defined for name in pair if name}
    gone = {
        name for _, new in rows for cell in re.findall(r"`([^`]+)`", new) for name in re.findall(r"\w+", cell)
    } - names
    assert gone == set()


def test_no_class_or_function_has_a_name_that_was_replaced() -> None:
    rows = _first_cells("glossary.md", below="Classes and functions")[1:]
    replaced = {
        (old.partition(":")[0], name) for old, _ in rows for name in re.findall(r"`(\w+)`", old.partition(":")[2])
    } - RIGHT_ELSEWHERE
    assert len(replaced) > 180
    assert {room for room, _ in replaced if not (PACKAGE / room).is_dir()} == set()
    found = []
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).parts[0]
        names = set(_DEFINITION.findall(path.read_text()))
        found += [f"{path.relative_to(PACKAGE)}: {name}" for name in names if (room, name) in replaced]
    assert found == []
