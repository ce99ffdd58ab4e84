"""Does a registry list what other packages offer, and survive those that are broken?"""

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from crescendo.cli.main import own_verbs
from crescendo.exporters.registry import export_formats, exporter_of
from crescendo.importers.registry import format_of, import_formats
from crescendo.inspectors.registry import inspector_names, inspector_of
from crescendo.model import plugins
from crescendo.model.errors import ConfigError
from crescendo.run.installed_libraries import optional_libraries, required_libraries
from crescendo.run.installed_plugins import BROKEN, IGNORED, OK, plugin_states
from crescendo.systems.kinds.loopback import LOOPBACK
from crescendo.systems.registry import SYSTEMS, all_kinds, system_names, system_of
from installed_package import forget_packages, install_package

Install = Callable[..., None]
REGISTRIES = {
    plugins.SYSTEMS: (system_of, system_names),
    plugins.INSPECTORS: (inspector_of, inspector_names),
    plugins.IMPORTERS: (format_of, import_formats),
    plugins.EXPORTERS: (exporter_of, export_formats),
}
SYSTEM = """
from crescendo.systems.kinds.loopback import Loopback
class Other(Loopback):
    name = "other"
OTHER = Other()
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install packages for the duration of a test."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    forget_packages()
    yield partial(install_package, tmp_path)
    for module in set(sys.modules) - before:
        if str(getattr(sys.modules[module], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[module]
    forget_packages()


@pytest.mark.parametrize("group", REGISTRIES)
def test_an_unknown_name_lists_own_and_plugin_names(group: str, install: Install) -> None:
    install("crescendo-more", entry_points={group: {"zebra": "not_imported:ZEBRA"}})
    find, names = REGISTRIES[group]
    assert names()[-1] == "zebra"
    with pytest.raises(ConfigError, match=r"no .* is called 'nonsense'; known: .+, zebra\b") as raised:
        find("nonsense")
    assert all(name in str(raised.value) for name in names())


@pytest.mark.parametrize("group", REGISTRIES)
@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("import nowhere_to_be_found", "ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
        ("OTHER = 1", "AttributeError: module 'broken_part' has no attribute 'PART'"),
        ("import sys; sys.exit('no licence')", "SystemExit: no licence"),
        ("PART = 1", "broken_part:PART is not a "),
    ],
)
def test_asking_for_a_broken_plugin_names_package_reason_and_cure(
    group: str, module: str, reason: str, install: Install
) -> None:
    install("crescendo-broken", entry_points={group: {"bad": "broken_part:PART"}}, modules={"broken_part": module})
    with pytest.raises(ConfigError) as raised:
        REGISTRIES[group][0]("bad")
    message = str(raised.value)
    assert f"plugin 'bad' of crescendo-broken 0.9 ({group})" in message
    assert reason in message
    assert message.endswith("; update or uninstall that package")


def test_a_broken_plugin_is_named_once_and_the_others_stay(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install(
        "crescendo-mixed",
        entry_points={plugins.SYSTEMS: {"bad": "bad_system:BAD", "other": "other_system:OTHER"}},
        modules={"bad_system": "1 / 0", "other_system": SYSTEM},
    )
    for _ in range(2):
        assert [kind.name for kind in all_kinds()] == [*SYSTEMS, "other"]
    reported = capsys.readouterr().err
    assert reported.count("crescendo: plugin 'bad' of crescendo-mixed 0.9") == 1
    assert reported.count("\n") == 1
    assert system_of("other").name == "other"


def test_names_are_listed_without_importing_a_plugin(install: Install) -> None:
    entry_points = {plugins.SYSTEMS: {"other": "other_system:OTHER"}}
    install("crescendo-other", entry_points=entry_points, modules={"other_system": SYSTEM})
    assert "other" in system_names()
    assert "other_system" not in sys.modules


def test_a_package_with_damaged_metadata_hides_no_other(
    install: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install("crescendo-other", entry_points={plugins.SYSTEMS: {"other": "other_system:OTHER"}})
    install("damaged-package")
    (tmp_path / "damaged_package-0.9.dist-info" / "entry_points.txt").write_text("[console_scripts]\nno value here\n")
    assert "other" in system_names()
    assert "the entry points of damaged-package 0.9 cannot be read" in capsys.readouterr().err


def test_own_parts_win_a_name(install: Install) -> None:
    entry_points = {plugins.SYSTEMS: {"loopback": "other_system:OTHER"}}
    install("crescendo-other", entry_points=entry_points, modules={"other_system": SYSTEM})
    assert system_of("loopback") is LOOPBACK
    assert list(all_kinds()).count(LOOPBACK) == 1
    assert system_names() == list(SYSTEMS)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("Other", "other_system:Other is not a SystemKind"),  # the class: its methods would lack their instance
        ("OTHER", "other_system:OTHER has the name 'other'"),
    ],
)
def test_a_system_must_be_an_instance_with_the_name_of_its_entry_point(
    value: str, reason: str, install: Install
) -> None:
    entry_points = {plugins.SYSTEMS: {"mine": f"other_system:{value}"}}
    install("crescendo-other", entry_points=entry_points, modules={"other_system": SYSTEM})
    with pytest.raises(ConfigError, match=reason):
        system_of("mine")


def test_doctor_says_what_came_from_where(install: Install) -> None:
    install(
        "crescendo-a",
        entry_points={
            plugins.SYSTEMS: {"loopback": "other_system:OTHER", "other": "other_system:OTHER"},
            plugins.INSPECTORS: {"bad": "bad_system:BAD"},
            plugins.VERBS: {"doctor": "other_system:OTHER"},
        },
        modules={"other_system": SYSTEM, "bad_system": "1 / 0"},
    )
    install("crescendo-b", version="2", entry_points={plugins.SYSTEMS: {"other": "nowhere:OTHER"}})
    found: dict[tuple[str, str, str], tuple[str, str]] = {
        (plugin.group, plugin.name, plugin.package): (state, why)
        for plugin, state, why in plugin_states(own_verbs())
        if plugin.package.startswith("crescendo-")
    }
    assert {key: state for key, (state, _) in found.items()} == {
        (plugins.SYSTEMS, "loopback", "crescendo-a 0.9"): IGNORED,
        (plugins.SYSTEMS, "other", "crescendo-a 0.9"): OK,
        (plugins.SYSTEMS, "other", "crescendo-b 2"): IGNORED,
        (plugins.INSPECTORS, "bad", "crescendo-a 0.9"): BROKEN,
        (plugins.VERBS, "doctor", "crescendo-a 0.9"): IGNORED,
    }
    assert "Crescendo has the same name" in found[plugins.SYSTEMS, "loopback", "crescendo-a 0.9"][1]
    assert "crescendo-a 0.9 has the same name" in found[plugins.SYSTEMS, "other", "crescendo-b 2"][1]
    assert "ZeroDivisionError" in found[plugins.INSPECTORS, "bad", "crescendo-a 0.9"][1]


def _own_package(install: Install, *requires: str) -> None:
    # It comes first on the import path, so it hides the metadata of the installed Crescendo.
    install("crescendo-lab", requires=requires, extras=("dev",))


def test_doctor_checks_every_requirement_of_the_metadata(install: Install) -> None:
    _own_package(install, "msgspec>=0.1", "never-written>=1", "psutil>=999", 'ancient; python_version < "3"')
    with pytest.raises(ConfigError, match=r"^never-written missing, psutil [0-9.]+ is not >=999; reinstall"):
        required_libraries()


def test_extras_are_listed_separately_and_are_not_errors(install: Install) -> None:
    _own_package(install, "msgspec>=0.1", 'never-written>=1; extra == "dev"')
    assert required_libraries().startswith("msgspec ")
    assert "never-written" not in required_libraries()
    assert optional_libraries() == "dev: never-written missing (pip install 'crescendo-lab[dev]')"


def test_the_installed_crescendo_meets_its_own_requirements() -> None:
    listed: Any = required_libraries()
    assert {"pyspark", "uvloop", "asyncpg", "typer"} <= {item.split()[0] for item in listed.split(", ")}
