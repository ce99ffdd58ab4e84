"""Which settings and which command the JVM gets; no JVM is started."""

import json
import sys
from pathlib import Path

import pytest

from crescendo.pipeline.spark import class_archive, kept_command
from crescendo.pipeline.spark.java import java_version
from crescendo.pipeline.spark.settings import QUICK_MESSAGES, settings_for

QUICK = "-XX:TieredStopAtLevel=1"


def java_options(messages: int | None, master: str | None = None) -> str:
    settings = settings_for(master, cores=2, memory=None, home=Path("/home"), java_options=(), messages=messages)
    return settings["spark.driver.extraJavaOptions"]


def test_only_an_analysis_that_is_known_to_be_short_does_without_the_optimising_compiler() -> None:
    assert QUICK in java_options(0)
    assert QUICK in java_options(QUICK_MESSAGES)
    assert QUICK not in java_options(QUICK_MESSAGES + 1)
    assert QUICK not in java_options(None)
    assert QUICK not in java_options(10, "spark://host:7077")


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kept command of this Python as its Java."""
    monkeypatch.setattr(kept_command, "archive_path", lambda: tmp_path / "spark.jsa")
    for name in kept_command._OWN_CONFIGURATION:
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "spark.command.json"
    path.write_text(json.dumps([sys.executable, "-cp", "jars/*"]))
    return path


def test_the_kept_command_gets_the_settings_of_the_session(kept: Path) -> None:
    settings = {"spark.driver.memory": "2g", "spark.driver.extraJavaOptions": "-Da=1 -Db=2", "spark.app.name": "x"}
    command = kept_command.kept_command(settings) or []
    main = command.index(kept_command.MAIN)
    assert command[:main] == [sys.executable, "-cp", "jars/*", "-Xmx2g", "-Da=1", "-Db=2"]
    assert command[main + 1 :][-3:] == ["--conf", "spark.app.name=x", "pyspark-shell"]


def test_spark_submit_starts_the_jvm_where_the_kept_command_may_be_wrong(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"spark.driver.memory": "2g", "spark.driver.extraJavaOptions": ""}
    assert kept_command.kept_command(settings) is not None
    with monkeypatch.context() as patch:
        patch.setenv("SPARK_CONF_DIR", "/etc/spark")
        assert kept_command.kept_command(settings) is None
    for content in ("[]", "{", json.dumps([str(kept.parent / "java that is gone"), "-cp", "jars/*"])):
        kept.write_text(content)
        assert kept_command.kept_command(settings) is None


def test_a_copied_environment_does_not_use_the_archive_of_its_original(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "release").write_text('JAVA_VERSION="17.0.1"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    def name_at(place: Path) -> str:
        (place / "pyspark").mkdir(parents=True)
        (place / "pyspark" / "__init__.py").touch()
        with monkeypatch.context() as patch:
            patch.delitem(sys.modules, "pyspark", raising=False)
            patch.syspath_prepend(place)
            path = class_archive.archive_path()
        assert path is not None
        return path.name

    assert name_at(tmp_path / "original") != name_at(tmp_path / "copy")


def test_the_version_of_java_is_read_without_running_it(tmp_path: Path) -> None:
    (tmp_path / "release").write_text('IMPLEMENTOR="X"\nJAVA_VERSION="21.0.2"\n')
    assert java_version(tmp_path / "bin" / "java") == 21
    (tmp_path / "release").write_text('JAVA_VERSION="1.8.0_402"\n')
    assert java_version(tmp_path / "bin" / "java") == 8
