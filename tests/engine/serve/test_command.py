"""The command line of the server."""

import subprocess
import sys

import httpx
import pytest

from engine import cli
from engine.mx import mx


def run(*argv):
    argv = [sys.executable, "-P", "-m", "engine", "serve", *argv]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


REFUSED = [
    (("--host", "0.0.0.0"), "--api-key-file"),
    (("--cache", "zip"), "no cache spec"),
    (("--max-body", "many"), "is no size"),
    (("--drain", "inf"), "not in the range"),
    (("--request-timeout", "nan"), "is no number"),
    (("--enable-dflash", "--draft", "none"), "exclude each other"),
    (("--host", "no.such.host.invalid", "--api-key-file", "KEY"), "give an address of this machine"),
    (("--api-key-file", "SHORT"), "at least 16"),
    (("--api-key-file", "SAME"), "different characters"),
    (("--prefix-store", "SHORT/below"), "cannot be used"),
    (("--model", "no-such-model"), "there is no folder no-such-model"),
    (("--model", "/no/such/model"), "there is no folder /no/such/model"),
    (("--model", "tiny", "--draft", "/no/such/drafter"), "there is no folder /no/such/drafter"),
    (("--model", "EMPTY"), "holds no model"),
    (("--device", "gpu"), "MLX has no such device on this machine"),
]


@pytest.mark.parametrize(("argv", "said"), REFUSED)
def test_refused(argv, said, tmp_path, monkeypatch, capsys):
    for name, content in {"KEY": "0123456789abcdef", "SAME": "k" * 20, "SHORT": "k"}.items():
        (tmp_path / name).write_text(content)
    (tmp_path / "EMPTY").mkdir()
    if "gpu" in argv and mx.is_available(mx.gpu):
        pytest.skip("MLX has all devices here")
    paths = {name: str(tmp_path / name) for name in ("KEY", "SAME", "SHORT", "SHORT/below", "EMPTY")}
    with pytest.raises(SystemExit) as ended:
        cli.main(["serve", *(paths.get(word, word) for word in argv)])
    assert ended.value.code in (1, 2)
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error


def test_a_model_that_cannot_be_had_here_is_refused_at_the_start(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    done = run("--model", "owner/model", "--port", "0")

    assert done.returncode == 2
    assert done.stdout == ""
    assert "is not downloaded" in done.stderr
    assert "hf download" in done.stderr


@pytest.mark.long
def test_a_model_that_would_be_downloaded_is_named_at_the_start(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    argv = [sys.executable, "-P", "-m", "engine", "serve", "--port", "0", "--model", "qwen3-8b"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=log)
    try:
        assert process.stdout.readline().startswith(b"http://127.0.0.1:")
        assert "is not on this machine" in (tmp_path / "log").read_text()
    finally:
        process.terminate()
        process.wait(120)
        process.stdout.close()


def test_help_needs_no_model():
    done = run("--help")
    assert done.returncode == 0
    assert "OpenAI" in done.stdout


@pytest.mark.parametrize("program", ["engine.cli", "engine.cli.sidecar", "engine.cli.mlx_server"])
def test_version(program):
    argv = [sys.executable, "-P", "-c", f"from {program} import main; main()", "--version"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith("kakeya-engine ")


@pytest.mark.long
def test_earlier_name_and_options(tmp_path):
    """The earlier program, with every option that it had."""
    script = [sys.executable, "-P", "-c", "from engine.cli.sidecar import main; main()"]
    options = ("--host", "127.0.0.1", "--port", "0", "--device", "cpu", "--enable-dflash", "--prewarm")
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([*script, *options], stdout=subprocess.PIPE, stderr=log)
    try:
        url = process.stdout.readline().decode().strip()
        assert url.startswith("http://127.0.0.1:"), (tmp_path / "log").read_text()
        with httpx.Client(base_url=url, timeout=120) as http:
            body = {"model": "tiny", "prompt": "import os\n" * 8, "max_tokens": 12, "temperature": 0}
            told = http.post("/v1/completions", json=body).json()["x_kakeya"]
            assert (told["draft"], told["fallback"]) == ("dflash", None)
            assert list(http.get("/v1/kakeya/stats").json()["models"]) == ["tiny"]
    finally:
        process.terminate()
        process.wait(120)
        process.stdout.close()


@pytest.mark.long
def test_stranger_gets_an_answer_that_is_short_honest_and_ends(tmp_path):
    """No model is named, neither to the server nor by a folder: what it has writes answers that end."""
    argv = [sys.executable, "-P", "-m", "engine", "serve", "--port", "0"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=log)
    try:
        url = process.stdout.readline().decode().strip()
        assert url.startswith("http://127.0.0.1:"), (tmp_path / "log").read_text()
        with httpx.Client(base_url=url, timeout=120) as http:
            (model,) = [each["id"] for each in http.get("/v1/models").json()["data"]]
            found = []
            for asked in ("Hello.", "Who are you?", "What is the capital of Berlin?"):
                body = {"model": model, "temperature": 0, "messages": [{"role": "user", "content": asked}]}
                (choice,) = http.post("/v1/chat/completions", json=body).json()["choices"]
                assert choice["finish_reason"] == "stop"
                found.append(choice["message"]["content"])
    finally:
        process.terminate()
        process.wait(120)
        process.stdout.close()
    assert model == "tiny-chat"
    assert found[0] == "Hello! How can I help?"
    assert all("a small model made for tests" in text for text in found[1:])
