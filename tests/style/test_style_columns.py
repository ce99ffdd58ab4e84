"""Readers of tables name columns through the declarations in record/tables.py, never as bare strings."""

import ast
from pathlib import Path

import pytest

from column_strings import OTHER_DICTIONARIES, bare_columns, bare_columns_in

PACKAGE = Path(__file__).parents[2] / "src" / "crescendo"
READERS = ("report", "exporters", "cli", "studies", "history", "campaigns")


def test_readers_have_no_bare_column_strings() -> None:
    files = [file for reader in READERS for file in sorted((PACKAGE / reader).rglob("*.py"))]
    assert len(files) > 50
    assert [found for file in files for found in bare_columns_in(file, PACKAGE)] == []


@pytest.mark.parametrize(
    "code",
    [
        'row["mean_ns"]',
        "f\"{row['p99.9']}\"",
        'row.get("subscription")',
        'pc.field("second") - 1',
        'ds.field("kind") == "texts"',
        'table.column("messages").to_numpy()',
        'table.sort_by([("first_seq", "ascending")])',
        'dataset.to_table(columns=["t_ns", metric])',
        'table.group_by(["bucket"]).aggregate([(other, "sum")])',
    ],
)
def test_a_bare_column_string_is_found(code: str) -> None:
    assert len(list(bare_columns(ast.parse(code)))) == 1


@pytest.mark.parametrize(
    "code",
    [
        "row.mean_ns",
        "row[_SECOND]",
        "pc.field(column_name(ThroughputRow.second))",
        'layout["shapes"]',
        'print("second")',
    ],
)
def test_a_declared_name_is_left_alone(code: str) -> None:
    assert not list(bare_columns(ast.parse(code)))


def test_an_exception_covers_only_what_it_names() -> None:
    tree = ast.parse('system["kind"]\nrow["kind"]')
    assert list(bare_columns(tree, {"system"})) == [(2, "kind")]


def test_every_exception_is_needed() -> None:
    for layer, names in OTHER_DICTIONARIES.items():
        trees = [ast.parse(file.read_text()) for file in (PACKAGE / layer).rglob("*.py")]
        for name in names:
            assert any(list(bare_columns(tree, names - {name})) for tree in trees), (layer, name)
