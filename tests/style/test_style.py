"""Names and sentences of the project: one meaning per name, words of this field, plain technical English."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

from plain_english import findings, findings_in_text
from retired_names import retired_in

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "crescendo"

ROLES = {
    # A module may share its name with one in another room where both play the same role there.
    "a system, broker or protocol": "activemq amqp10 artemis java mlmq mosquitto qpid_broker_j qpid_dispatch "
    "rabbitmq relay tls topics",
    "a part of every codec": "acks arrivals batch connection decoding events frames handshake layout links packets "
    "primitives properties server session types",
    "a part of every room of its kind": "assignment base job registry settings worker schema errors",
    "a verb, and what carries it out": "campaign compare export logs peer search watch",
    "a section of the report, and the table that it shows": "backlog evidence outages spans",
    "a Maestro file, written and read": "latency messages rates readings sheets",
}
SHARED = {name for names in ROLES.values() for name in names.split()}


def test_no_module_has_a_retired_name() -> None:
    found = [path for path in PACKAGE.rglob("*.py") if path.stem in retired_in(_folder(path, PACKAGE))]
    found += [path for path in (ROOT / "tests").rglob("*.py") if path.stem in retired_in("tests")]
    assert not found


def test_a_retired_name_is_noticed() -> None:
    assert "farewell" in retired_in("anywhere")
    assert "sending" in retired_in("load")
    assert "sending" not in retired_in("net")


def test_modules_share_a_name_only_where_they_play_the_same_role() -> None:
    modules = defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        if not path.stem.startswith("__"):
            modules[path.stem].append(_folder(path, PACKAGE))
    assert {name: folders for name, folders in modules.items() if len(folders) > 1 and name not in SHARED} == {}


def test_no_public_class_name_means_two_things_in_two_layers() -> None:
    """Inside wire/ the same role keeps the same name in each codec."""
    layers = defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        layer = path.relative_to(PACKAGE).parts[0]
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                layers[node.name].add("wire" if layer == "wire" else _folder(path, PACKAGE) + "/" + path.stem)
    assert {name: sorted(homes) for name, homes in layers.items() if len(homes) > 1} == {}


def test_source_and_documentation_are_in_plain_english() -> None:
    assert [str(finding) for finding in findings()] == []


@pytest.mark.parametrize(
    "text",
    [
        "'x' is no bound",
        "reads so many bytes",
        "Dear tables are skipped",
        "the conductor is told at once",
        "one row a message",
        "Who closes right after a last frame cannot know",
        "say good-bye",
    ],
)
def test_translated_english_is_noticed(text: str) -> None:
    assert findings_in_text(text)


@pytest.mark.parametrize(
    "text",
    [
        "there is no such file",
        "it is no longer open",
        "Who sends, and who receives?",
        "one row per message",
        "not a bound",
    ],
)
def test_plain_english_is_left_alone(text: str) -> None:
    assert not findings_in_text(text)


def test_only_the_pipeline_and_importers_name_pyspark() -> None:
    found = [path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if "pyspark" in path.read_text()]
    assert {path.parts[0] for path in found} == {"pipeline", "importers"}


def _folder(path: Path, root: Path) -> str:
    return str(path.parent.relative_to(root))
