"""Is everything that a module imports at once installed with the package, not only for tests or with an extra?"""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[2]
BROUGHT_ALONG = {"markupsafe": "jinja2", "py4j": "pyspark", "pydantic": "fastapi", "starlette": "fastapi"}
CALLBACKS = ROOT / "src" / "crescendo" / "topology" / "ansible" / "callbacks"  # Ansible loads these


def _normal(name: str) -> str:
    return re.split(r"[<>=\[]", name)[0].lower().replace("_", "-")


def _imported(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found - sys.stdlib_module_names - {"crescendo"}


def test_every_module_can_be_imported_without_extras() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    installed = {_normal(name) for name in declared}
    providers = packages_distributions()
    missing = set()
    for path in (ROOT / "src" / "crescendo").rglob("*.py"):
        for name in _imported(path) if CALLBACKS not in path.parents else ():
            known = {BROUGHT_ALONG.get(name, ""), *(_normal(each) for each in providers.get(name, []))}
            if not known & installed:
                missing.add((name, str(path.relative_to(ROOT))))
    assert missing == set()
