import importlib

import click
import pytest

from engine import cli
from engine.errors import BadInput, EngineError, MissingPackage, OutOfReach, RollbackError


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (EngineError("no such model", "pick another"), 1, "error: no such model\n  pick another\n"),
        (MissingPackage("torch is absent"), 1, "error: torch is absent"),
        (RollbackError("a cache is torn"), 1, "error: a cache is torn"),
        (BadInput("no such spec", "take e8@q38"), 2, "error: no such spec\n  take e8@q38\n"),
        (OutOfReach("the hub did not answer"), 3, "error: the hub did not answer"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
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
    assert "error:" in capsys.readouterr().err


@pytest.mark.parametrize("package", ["", ".bench", ".codec", ".eval", ".train"])
def test_each_table_has_the_first_sentence_of_each_command(package):
    table = importlib.import_module(f"engine.cli{package}").COMMANDS
    group = cli.cli if not package else cli.cli.get_command(click.Context(cli.cli), package[1:])
    context = click.Context(group)
    assert list(table) == sorted(table)
    assert {name: group.get_command(context, name).get_short_help_str(limit=200) for name in table} == table
