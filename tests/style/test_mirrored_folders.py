"""Does `tests/` mirror the package, so that the tests of a module are found where its name says?"""

from pathlib import Path

TESTS = Path(__file__).parents[1]
PACKAGE = TESTS.parent / "src" / "crescendo"
OF_THE_WHOLE = {"api", "documentation", "interop", "plugins", "reference", "style", "system"}
"""What these tests look at is not one package. CONTRIBUTING.md says what each is for."""


def test_every_folder_with_tests_has_the_name_of_a_package() -> None:
    folders = {path.parent.relative_to(TESTS) for path in TESTS.rglob("test_*.py")}
    strange = {folder for folder in folders if folder.parts and folder.parts[0] not in OF_THE_WHOLE}
    strange -= {folder for folder in strange if (PACKAGE / folder / "__init__.py").is_file()}
    assert not strange


def test_every_folder_of_the_whole_is_there_and_explained() -> None:
    guide = (TESTS.parent / "CONTRIBUTING.md").read_text()
    assert [name for name in OF_THE_WHOLE if not (TESTS / name).is_dir() or f"`{name}/`" not in guide] == []
