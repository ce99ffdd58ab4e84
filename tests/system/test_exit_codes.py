"""Which exit code and which message does each ending of a verb have?"""

import sys
from pathlib import Path
from typing import NoReturn

import pytest

from crescendo.cli import entry_point
from crescendo.cli.main import main
from crescendo.model.errors import ConfigError, PeerError


@pytest.mark.parametrize(
    ("ended", "code", "message"),
    [
        (ConfigError("x.yml: no such file"), 2, "crescendo: x.yml: no such file"),
        (PeerError("the system went away"), 3, "crescendo: the system went away"),
        (KeyboardInterrupt(), 3, "crescendo: interrupted"),
    ],
)
def test_every_error_is_one_sentence_and_an_exit_code(
    ended: BaseException, code: int, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def read_summary(_run_dir: Path) -> NoReturn:
        raise ended

    monkeypatch.setattr("crescendo.report.page_of_directory.read_summary", read_summary)
    monkeypatch.setattr("sys.argv", ["crescendo", "report", "somewhere"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == code
    assert capsys.readouterr().err.strip() == message


def test_ctrl_c_while_the_verbs_are_loaded_is_one_sentence_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted:
        def find_spec(self, name: str, *_where: object) -> None:
            if name == main.__module__:
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, main.__module__)
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    with pytest.raises(SystemExit) as left:
        entry_point.main()
    assert left.value.code == 3
    assert capsys.readouterr().err == "crescendo: interrupted\n"
