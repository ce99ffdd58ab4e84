"""Names and sentences of the project: one meaning per name, words of this field, plain technical English."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

from plain_english import findings, findings_in_file, findings_in_text
from retired_names import RETIRED, RETIRED_IN_TESTS, RIGHT, is_retired

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "crescendo"

SHARED = {
    # A module may share its name with one in another room where both play the same role there: name -> those rooms.
    # One codec may call its parts as another does: rooms of wire/ need no entry among themselves.
    #
    # what a system, a broker or a protocol needs in this room
    **dict.fromkeys(
        ("activemq", "artemis", "qpid_broker_j", "rabbitmq"), "inspectors/kinds systems/kinds topology/rendering"
    ),
    **dict.fromkeys(("mosquitto", "qpid_dispatch"), "inspectors/kinds systems/kinds"),
    "mlmq": "cli client inspectors/kinds load/protocols systems/kinds",
    "amqp10": "client load/protocols",
    "relay": "systems/kinds topology/rendering",
    "java": "pipeline/spark systems/install",
    "tls": "net systems",
    "topics": "control wire/mqtt",
    # a part that every room of its kind has
    "registry": "calibrate exporters faults importers inspectors load/protocols systems",
    **dict.fromkeys(("assignment", "worker"), "agent inspectors load mlmq/workloads"),
    "base": "inspectors systems",
    "errors": "model pipeline/spark",
    "events": "control/conductor wire/amqp091 wire/amqp10 wire/artemis_core wire/mqtt wire/openwire wire/stomp",
    "job": "importers pipeline pipeline/logs",
    "schema": "cli mlmq/storage record",
    "server": "mlmq/broker systems/relay wire/artemis_core wire/openwire wire/stomp",
    "session": "pipeline/spark run wire/amqp10",
    "settings": "mlmq/broker pipeline/spark systems",
    # a verb, and what carries it out
    "campaign": "cli model",
    "compare": "cli pipeline/compare",
    "export": "cli exporters/amqp_csv exporters/maestro",
    "peer": "cli control",
    "search": "cli model run",
    "watch": "cli pipeline/live",
    # a section of the report, and the table that it shows
    **dict.fromkeys(("backlog", "outages"), "pipeline/behaviour report/sections"),
    "evidence": "pipeline/verdict report/sections",
    "spans": "pipeline/traffic report/sections",
    # a file of Maestro, written and read
    **dict.fromkeys(("latency", "rates", "sheets"), "exporters/maestro importers/formats/maestro"),
    "messages": "importers/formats/maestro wire/artemis_core wire/openwire",
    "readings": "exporters/maestro pipeline/traffic",
}


def test_no_module_has_a_retired_name() -> None:
    found = [name for name in _modules_and_packages(PACKAGE) if is_retired(name, RETIRED)]
    for folder in ("tests", "bench", "examples"):
        found += [name for name in _modules_and_packages(ROOT / folder) if is_retired(name, RETIRED_IN_TESTS)]
    assert found == []


@pytest.mark.parametrize(
    "name", ["load/sending", "load/engine/tiers", "report/sections/looks", "net/farewell", "parties"]
)
def test_a_retired_name_is_noticed(name: str) -> None:
    assert is_retired(name)


def test_a_word_is_retired_only_where_it_misled() -> None:
    assert not is_retired("net/sending")
    assert set(_modules_and_packages(PACKAGE)) >= RIGHT


def test_modules_share_a_name_only_where_they_play_the_same_role() -> None:
    modules = defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        if not path.stem.startswith("__"):
            modules[path.stem].append(_folder(path, PACKAGE))
    shared = {name: folders for name, folders in modules.items() if len({_codecs_as_one(each) for each in folders}) > 1}
    assert {
        name: folders for name, folders in shared.items() if not set(folders) <= set(SHARED.get(name, "").split())
    } == {}
    assert {name for name, rooms in SHARED.items() if not set(rooms.split()) <= set(modules[name])} == set()


def _codecs_as_one(folder: str) -> str:
    return "wire" if folder.startswith("wire/") else folder


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


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", "def test_a_file_that_is_no_program() -> None: ..."),
        ("a.py", "def test_who_closes_cannot_know() -> None: ..."),
        ("a.py", "x = 1  # reads so many bytes"),
        ("a.j2", "<p>the conductor is told at once</p>"),
        ("a.sql", "-- one row a message"),
        ("a.js", "// say good-bye"),
        ("a.yml", "# Dear tables"),
        ("a.md", "reads so many bytes"),
    ],
)
def test_every_kind_of_text_is_read(tmp_path: Path, name: str, text: str) -> None:
    file = tmp_path / name
    file.write_text("\n" + text + "\n")
    assert [found.line for found in findings_in_file(file)] == [2]


def test_code_is_not_text(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("told = dear\n")
    assert not list(findings_in_file(file))
    file = tmp_path / "a.md"
    file.write_text("```\ntold\n```\n`told`\n")
    assert not list(findings_in_file(file))


def test_children_are_started_in_one_place() -> None:
    alone = {"processes/child.py", "cluster/remote_program.py"}  # the latter runs on hosts that lack our package
    found = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if "Popen(" in path.read_text()}
    assert found == alone


def test_only_the_pipeline_and_importers_name_pyspark() -> None:
    found = [path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if "pyspark" in path.read_text()]
    assert {path.parts[0] for path in found} == {"pipeline", "importers"}


def _modules_and_packages(root: Path) -> list[str]:
    modules = [path.relative_to(root).with_suffix("") for path in root.rglob("*.py")]
    return sorted({str(path) for path in modules} | {str(path.parent) for path in modules} - {"."})


def _folder(path: Path, root: Path) -> str:
    return str(path.parent.relative_to(root))
