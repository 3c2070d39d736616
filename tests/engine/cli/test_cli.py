import pytest

from engine import cli
from engine.errors import EngineError


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (EngineError("no such model", "pick another"), 1, "error: no such model; pick another"),
        (KeyboardInterrupt(), 130, ""),
        (ZeroDivisionError("oops"), 70, "this is a bug"),
    ],
)
def test_exit_codes(monkeypatch, capsys, error, code, words):
    def fail(**_):
        raise error

    monkeypatch.setattr(cli.cli, "main", fail)
    with pytest.raises(SystemExit) as ended:
        cli.main([])
    said = capsys.readouterr().err
    assert ended.value.code == code
    assert words in said
    assert ("Traceback" in said) == (code == 70)


@pytest.mark.parametrize(
    "argv",
    [
        ["nonsense"],
        ["codec", "nonsense"],
        ["codec", "rd", "--bits", "7"],
        ["codec", "rd", "--bits", ""],
        ["codec", "rd", "--groups", "64,63"],
        ["codec", "rd", "--dim", "100"],
        ["codec", "rd", "--n-vectors", "-1"],
        ["codec", "rd", "--n-vectors", "99999999999"],
        ["codec", "rd", "--seed", "x"],
        ["codec", "rd", "--distributions", "cauchy"],
    ],
)
def test_bad_usage_is_two(argv, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(argv)
    assert ended.value.code == 2
    assert "Error:" in capsys.readouterr().err
