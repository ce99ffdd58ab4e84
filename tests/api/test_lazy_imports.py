"""Do `import crescendo`, `crescendo --help` and a peer import only what they need, and are plugins' verbs listed?"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import crescendo
from crescendo.control.peer_launch import PeerLaunch

HEAVY = ("numpy", "pyspark", "plotly", "asyncpg", "scipy", "matplotlib", "fastapi", "uvicorn")
NOT_IN_A_PEER = ("pyspark", "plotly", "scipy", "matplotlib", "rich", "typer", "fastapi", "uvicorn")
NOT_IN_A_PLAIN_RUN = ("pyspark", "pyroute2", "httpx", "cryptography", "rich", "plotly", "scipy")
IMPORTED = "import sys; print([name for name in {names!r} if name in sys.modules])"
PLUGINS = """
[crescendo.verbs]
greet = greeting_plugin:greet
run = greeting_plugin:greet
wreck = greeting_plugin:nothing_of_this_name
"""


def _python(
    program: str, *arguments: str, path: Path | None = None, stdin: str = ""
) -> "subprocess.CompletedProcess[str]":
    code = f"import sys; sys.path[:0] = {[str(path)] if path else []!r}\n{program}"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], input=stdin, capture_output=True, text=True, check=False
    )


def test_importing_crescendo_is_cheap() -> None:
    done = _python("import crescendo\n" + IMPORTED.format(names=(*HEAVY, "pyarrow", "msgspec", "typer", "rich")))
    assert done.stdout.strip() == "[]", done.stderr


def test_help_imports_nothing_heavy() -> None:
    program = "from crescendo.cli.main import main\ntry:\n    main()\nfinally:\n    " + IMPORTED.format(names=HEAVY)
    done = _python(program, "--help")
    assert "analyze" in done.stdout, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_plain_run_loads_nothing_for_labs_and_clusters() -> None:
    done = _python("import crescendo.run.execute\n" + IMPORTED.format(names=NOT_IN_A_PLAIN_RUN))
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize(
    ("role", "worker"),
    [
        ("sender", "crescendo.load.worker"),
        ("receiver", "crescendo.load.worker"),
        ("inspector", "crescendo.inspectors.worker"),
        ("client", "crescendo.mlmq.workloads.worker"),
    ],
)
def test_a_peer_imports_neither_spark_nor_plots(role: str, worker: str) -> None:
    """It imports everything its role needs, then fails to reach the control broker."""
    wanted = IMPORTED.format(names=(*NOT_IN_A_PEER, worker))
    program = (
        f"from crescendo.cli.launched_peer import main\ntry:\n    sys.exit(main(*sys.argv[1:]))\nfinally:\n    {wanted}"
    )
    launch = PeerLaunch("mqtt://127.0.0.1:9", "run", "00")
    done = _python(program, role, "x", "unused", stdin=launch.to_line())
    assert done.stdout.strip() == f"[{worker!r}]", done.stderr
    assert done.stderr.startswith("crescendo: ")
    assert done.returncode != 0


def test_what_a_peer_imports_for_its_assignment_needs_neither_spark_nor_plots() -> None:
    """Drivers, JMS clients, inspectors and agents, which are imported only when an assignment names them."""
    program = (
        "import crescendo.agent.worker, crescendo.load.jms.jms_engines\n"
        "from crescendo.inspectors.registry import INSPECTORS, inspector_of\n"
        "from crescendo.load.protocols.registry import driver_of\n"
        "from crescendo.model.protocols import OWN\n"
        "for name in OWN: driver_of(name, 'sender'), driver_of(name, 'receiver')\n"
        "for name in INSPECTORS: inspector_of(name)\n"
    )
    without_rich = (name for name in NOT_IN_A_PEER if name != "rich")  # httpx imports it
    wanted = (*without_rich, "crescendo.load.protocols.openwire", "crescendo.inspectors.kinds.rabbitmq")
    done = _python(program + IMPORTED.format(names=wanted))
    assert done.stdout.strip() == str(list(wanted[-2:])), done.stderr


def test_every_public_name_can_be_imported_and_is_documented() -> None:
    for name in crescendo.__all__:
        assert getattr(crescendo, name).__doc__, name
    assert set(crescendo.__all__) <= set(dir(crescendo))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        crescendo.nonsense  # noqa: B018


def test_type_checkers_and_the_lazy_import_know_the_same_names() -> None:
    tree = ast.parse(Path(crescendo.__file__).read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    checked = {
        alias.asname or alias.name: statement.module
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    assert sorted(checked) == sorted(crescendo.__all__) == crescendo.__all__
    assert {name: home for name, home in checked.items() if name not in {"run", "report"}} == crescendo._HOME_OF


def test_packages_of_the_same_name_can_be_called_and_imported() -> None:
    done = _python(
        "import crescendo.run.execute, crescendo.report.page, inspect, crescendo\n"
        "print('observer' in inspect.signature(crescendo.run).parameters, crescendo.run.execute.__name__)\n"
        "print(list(inspect.signature(crescendo.report).parameters))"
    )
    assert done.stdout.splitlines() == ["True crescendo.run.execute", "['run']"], done.stderr


@pytest.fixture
def installed_plugin(tmp_path: Path) -> Path:
    """The files that installing a package with three verbs would leave: a new one, one of our names, a broken one."""
    information = tmp_path / "greeting-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(PLUGINS)
    (tmp_path / "greeting_plugin.py").write_text(
        "import typer\n\n\ndef greet(name: str = 'nobody') -> None:\n"
        "    '''Greet somebody.'''\n    print(f'hello, {name}')\n    raise typer.Exit(5)\n"
    )
    return tmp_path


MAIN = "from crescendo.cli.main import main\nmain()"


def test_a_verb_of_a_plugin_is_listed_after_ours_and_a_broken_one_is_named(installed_plugin: Path) -> None:
    done = _python(MAIN, "--help", path=installed_plugin)
    assert done.returncode == 0
    assert "Greet somebody." in done.stdout
    assert done.stdout.index("Greet somebody.") > done.stdout.index("Start and stop real brokers")
    assert done.stdout.count("Run one experiment") == 1
    assert "plugin 'wreck' of greeting 1.0 (crescendo.verbs) cannot be loaded" in done.stderr
    assert "wreck" not in done.stdout


def test_a_verb_of_a_plugin_runs_with_its_options_and_exit_code(installed_plugin: Path) -> None:
    done = _python(MAIN, "greet", "--name", "Ada", path=installed_plugin)
    assert (done.stdout, done.returncode) == ("hello, Ada\n", 5), done.stderr
    broken = _python(MAIN, "wreck", path=installed_plugin)
    assert broken.returncode == 2
    assert "plugin 'wreck' of greeting 1.0 (crescendo.verbs) cannot be loaded" in broken.stderr
