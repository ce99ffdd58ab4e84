"""Which exit code and which message does each ending of a verb have?"""

import pytest

from crescendo.cli import doctor
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
    def verb(_as_json: bool) -> int:
        raise ended

    monkeypatch.setattr(doctor, "doctor", verb)
    monkeypatch.setattr("sys.argv", ["crescendo", "doctor"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == code
    assert capsys.readouterr().err.strip() == message
