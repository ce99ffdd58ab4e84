"""Where does a module name a column of a published table as a bare string?

Finds strings where a column is named: in a subscript, in `.get`, and anywhere in the arguments of calls that take
columns, such as `pc.field` or `sort_by`. A subscript of something that is not a row of a table is a false alarm: those
are listed by layer and by what is subscripted.
"""

import ast
from collections.abc import Iterator, Set
from pathlib import Path

from crescendo.record.tables import TABLES

COLUMNS = {name for table in TABLES for name in table.column_names}

TAKES_COLUMNS = {
    "field", "column", "sort_by", "group_by", "aggregate", "select", "to_table", "to_batches", "iter_batches",
    "append_column", "scanner",
}  # fmt: skip

OTHER_DICTIONARIES = {
    "exporters": {"system", "records"},  # facts in the manifest; fields of Maestro's own binary format
    "cli": {"kind", "record.facts", "event.detail"},  # kinds of systems, running systems, events of the control plane
}


def bare_columns(tree: ast.AST, others: Set[str] = frozenset()) -> Iterator[tuple[int, str]]:
    """Line and column name of every bare string. `others` are expressions that are not rows of a table."""
    for node in ast.walk(tree):
        found: Iterator[str] = iter(())
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) not in others:
            found = _strings(node.slice)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr == "get" and ast.unparse(node.func.value) not in others:
                found = _strings(*node.args[:1])
            elif node.func.attr in TAKES_COLUMNS:
                found = _strings(*node.args, *(keyword.value for keyword in node.keywords))
        for name in found:
            if name in COLUMNS:
                yield node.lineno, name


def bare_columns_in(file: Path, package: Path) -> list[str]:
    path = file.relative_to(package)
    others = OTHER_DICTIONARIES.get(path.parts[0], frozenset())
    return [f"{path}:{line} {name!r}" for line, name in bare_columns(ast.parse(file.read_text()), others)]


def _strings(*nodes: ast.expr) -> Iterator[str]:
    for node in nodes:
        for each in ast.walk(node):
            if isinstance(each, ast.Constant) and isinstance(each.value, str):
                yield each.value
