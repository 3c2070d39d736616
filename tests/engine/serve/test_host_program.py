"""A host application that starts `kakeya-mlx-server` in place of its own program, one process for a loaded model."""

import json
import shlex
import signal
import socket
import subprocess
import sys
import threading

import click
import httpx
import pytest

from engine.cli.mlx_server import command
from engine.models import registry
from tests.engine.serve.world import cancelled, until

PROGRAM = "from engine.cli.mlx_server import main; main()"
READY = "http server listening"
CHAT, PAIR = registry.DATA / "tiny-chat" / "target", registry.DATA / "tiny"


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


class Session:
    """A model that the host loaded."""

    def __init__(self, folder, *options, port=None, model=CHAT, name="my/model@4bit"):
        self.port, self.name, self.log = port or free_port(), name, folder / f"log-{port}"
        argv = [
            sys.executable,
            "-P",
            "-c",
            PROGRAM,
            "--model",
            model,
            "--port",
            str(self.port),
            "--model-id",
            name,
        ]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([*argv, *options], stdout=subprocess.PIPE, stderr=log)
        # A host gives up after its own time; here the line, or the end of the process, comes within the test's.
        self.line = self.process.stdout.readline().decode().strip()
        self.http = httpx.Client(base_url=f"http://localhost:{self.port}", timeout=120)

    def __enter__(self):
        assert READY in self.line, self.log.read_text()
        return self

    def __exit__(self, *_):
        self.end(signal.SIGKILL)

    def end(self, sig):
        """Unload the model, or crash."""
        self.http.close()
        if self.process.poll() is None:
            self.process.send_signal(sig)
        code = self.process.wait(60)
        self.process.stdout.close()
        return code

    def body(self, text="Count from 1 to 5.", **more):
        turns = [{"role": "user", "content": text}]
        return {"model": self.name, "messages": turns, "temperature": 0, **more}

    def chat(self, text="Count from 1 to 5.", headers=None, **more):
        return self.http.post("/v1/chat/completions", json=self.body(text, **more), headers=headers)

    def loaded(self):
        return [model["id"] for model in self.http.get("/v1/models").json()["data"]]


def test_the_model_is_loaded_when_the_line_comes(tmp_path):
    with Session(tmp_path, "--ctx-size", "64") as session:
        assert session.line.endswith(f"http://127.0.0.1:{session.port}")
        assert session.http.get("/health").json()["status"] == "ok"
        assert session.loaded() == [session.name]
        (model,) = session.http.get("/v1/models").json()["data"]
        assert (model["x_kakeya"]["loaded"], model["x_kakeya"]["context"]) == (True, 64)
        # The context holds prompt and answer; a prompt that leaves no room is refused in words that hosts know.
        answer = session.chat("Count from 1 to 90.", max_tokens=500).json()
        assert answer["usage"]["total_tokens"] <= 64
        long = session.chat("count " * 90)
        assert (long.status_code, long.json()["error"]["code"]) == (400, "context_length_exceeded")
        assert session.chat(model="another").status_code == 404
        assert session.end(signal.SIGTERM) == 0


@pytest.mark.long
def test_a_stream_is_aborted_and_the_model_is_loaded_again_after_its_end_and_after_a_crash(tmp_path):
    with Session(tmp_path, model=PAIR / "target") as session:
        with session.http.stream(
            "POST", "/v1/chat/completions", json=session.body(stream=True, max_tokens=8)
        ) as whole:
            lines = [line.removeprefix("data: ") for line in whole.iter_lines() if line]
        assert lines[-1] == "[DONE]"
        deltas = [json.loads(line)["choices"][0]["delta"].get("content") or "" for line in lines[:-1]]
        assert "".join(deltas)
        endless = session.body("def main(argv):", stream=True, max_tokens=1500)
        with session.http.stream("POST", "/v1/chat/completions", json=endless) as aborted:
            next(aborted.iter_lines())
        until(lambda: cancelled(session) == 1)
        assert session.chat(max_tokens=4).status_code == 200
        assert session.end(signal.SIGTERM) == 0
    with Session(tmp_path, port=session.port) as again:
        with again.http.stream("POST", "/v1/chat/completions", json=again.body(stream=True)) as running:
            next(running.iter_lines())
            again.process.kill()
        assert again.end(signal.SIGKILL) == -signal.SIGKILL
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"http://localhost:{session.port}/health")
    with Session(tmp_path, port=session.port) as afresh:
        assert afresh.chat(max_tokens=4).status_code == 200


@pytest.mark.long
def test_two_models_are_loaded_at_once_and_a_port_is_used_once(tmp_path):
    sessions = []
    ports = [free_port(), free_port()]
    starts = [
        threading.Thread(
            target=lambda port=port: sessions.append(Session(tmp_path, port=port, name=f"m{port}"))
        )
        for port in ports
    ]
    for start in starts:
        start.start()
    for start in starts:
        start.join(120)
    first, second = sessions
    with first, second:
        assert {first.loaded()[0], second.loaded()[0]} == {f"m{port}" for port in ports}
        assert first.chat(max_tokens=4).status_code == second.chat(max_tokens=4).status_code == 200
        late = Session(tmp_path / "..", port=first.port)
        assert (late.line, late.end(signal.SIGTERM)) == ("", 2)
        assert "cannot listen" in late.log.read_text()
        assert first.chat(max_tokens=4).status_code == 200


@pytest.mark.long
def test_a_key_is_needed_and_a_drafter_drafts_no_more_than_its_block(tmp_path):
    key = {"Authorization": "Bearer local"}
    options = (
        "--api-key",
        "local",
        "--draft-kind",
        "dflash",
        "--draft-model",
        PAIR / "draft",
        "--block-size",
        "4",
    )
    with Session(tmp_path, *options, model=PAIR / "target") as session:
        assert session.http.get("/health").status_code == 200
        for headers in ({}, {"Authorization": "Bearer other"}):
            assert session.chat(headers=headers).status_code == 401
        body = {"model": session.name, "prompt": "import os\n" * 8, "max_tokens": 24, "temperature": 0}
        told = [
            session.http.post(
                "/v1/completions", json={**body, "x_kakeya": {"draft": draft}}, headers=key
            ).json()
            for draft in ("dflash", "none")
        ]
        assert told[0]["choices"][0]["text"] == told[1]["choices"][0]["text"]
        report = told[0]["x_kakeya"]
        assert (report["draft"], report["agreement"]["rows"]) == ("dflash", 4)
        assert 0 < report["proposed"] <= 3 * report["rounds"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--draft-model", CHAT), "drafter"),
        (("--draft-model", PAIR / "draft", "--block-size", "500"), "larger than"),
    ],
)
def test_a_model_that_cannot_be_loaded_ends_the_process(tmp_path, options, said):
    session = Session(tmp_path, *options, model=PAIR / "target")
    assert session.line == ""
    assert session.end(signal.SIGTERM) in (1, 2)
    assert said in session.log.read_text()
    assert "Traceback" not in session.log.read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--draft-kind", "eagle3"), "give --draft-model"),
        (("--draft-kind", "medusa"), "no such kind"),
        (("--embedding",), "No such option"),
        (("--api-key", " local"), "no client can send"),
        (("--api-key", "clé"), "no client can send"),
        (("--ctx-size", "-1"), "not in the range"),
        (("--host", "0.0.0.0"), "not loopback"),
        (("--host", "0.0.0.0", "--api-key", "weak"), "at least 16"),
        (("--kv-bits", "4", "--kv-quant-scheme", "turboquant"), "the only one here is uniform"),
        (("--kv-bits", "3.5", "--kv-quant-scheme", "uniform"), "bits"),
        (("--kv-bits", "4", "--kv-quant-scheme", "uniform", "--cache", "e8v@4.25"), "exclude each other"),
    ],
)
def test_what_this_engine_lacks_is_refused_with_the_reason(options, said):
    with pytest.raises(click.UsageError) as refused:
        command.main(["--model", str(CHAT), "--port", "0", *options], standalone_mode=False)
    assert said in refused.value.format_message()


@pytest.mark.long
@pytest.mark.parametrize("output", ["| true; exit ${PIPESTATUS[0]}", "> /dev/full"])
def test_a_server_ends_if_nobody_reads_its_line(output):
    argv = shlex.join([sys.executable, "-P", "-c", PROGRAM, "--model", str(CHAT), "--port", "0"])
    server = subprocess.run(
        ["bash", "-c", f"{argv} {output}"], stderr=subprocess.PIPE, timeout=120, check=False
    )
    assert server.returncode == 1
    assert b"nobody reads the line that says where the server is" in server.stderr
    assert b"Traceback" not in server.stderr
