"""The command `kakeya` as people and programs see it: exit codes, what is printed where, and how it fails."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from bridge.bus import objects, wire
from bridge.cli import COMMANDS, cli
from bridge.client import Client
from bridge.common.cli.program import run_program
from bridge.common.errors import ExitCode, safe_to_retry

KAKEYA = (sys.executable, "-P", "-m", "bridge")


def start(where: Path, *args: str) -> subprocess.Popen[str]:
    """Run the command as a process of its own."""
    return subprocess.Popen(
        [*KAKEYA, *args], cwd=where, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ndjson(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def error_of(done) -> dict:
    """Return the error that a command with --json ended with."""
    *_, error = ndjson(done.stdout)
    assert error.keys() == {"error", "code", "fix", "exit_code", "safe_to_retry"}
    assert error["exit_code"] == done.returncode
    return error


USAGE = {
    "an unknown preset": (("run", "nop"), "there is no preset 'nop'", "Did you mean noop?"),
    "an unknown parameter": (
        ("run", "kv-codec-rd", "-p", "n_vector=64"),
        "no parameter 'n_vector'",
        "Did you mean n_vectors?",
    ),
    "a parameter out of range": (
        ("run", "kv-codec-rd", "-p", "n_vectors=5"),
        "a whole number from 64 to 65536",
        "",
    ),
    "a parameter of another type": (
        ("run", "kv-codec-rd", "-p", "n_vectors=many"),
        "a whole number from 64",
        "",
    ),
    "a choice that is none": (("run", "kv-codec-rd", "-p", "dim=100"), "one of 64, 128, 256, 512", ""),
    "a parameter without a value": (
        ("run", "kv-codec-rd", "-p", "n_vectors"),
        "write it as NAME=VALUE",
        "n_vectors",
    ),
    "a parameter twice": (("run", "kv-codec-rd", "-p", "dim=64", "-p", "dim=128"), "dim is given twice", ""),
    "a missing parameter": (("run", "pytest-path"), "needs parameter path", "-p path=VALUE"),
    "a path that leaves its folder": (
        ("run", "pytest-path", "-p", "path=tests/../x"),
        "a path below tests/",
        "",
    ),
    "an option in place of a path": (("run", "pytest-path", "-p", "path=--pdb"), "a path below tests/", ""),
    "an unknown ref": (("run", "noop", "--ref", "nowhere"), "'nowhere' is not a commit", "--ref"),
    "a prefix that is none": (
        ("run", "noop", "--prefix", "x"),
        "cannot begin a request branch",
        "mac-bridge-",
    ),
    "a suffix that is none": (("run", "noop", "--suffix=x"), "cannot end a request branch", "--suffix=-b876"),
    "a time that is none": (("run", "noop", "--wait=soon"), "'soon' is not a time span", ""),
    "a lifetime that is too long": (("run", "noop", "--expires", "60d"), "within 30 days", ""),
    "a label that is none": (("run", "noop", "--label", "a b"), "labels", ""),
    "an unknown remote": (("run", "noop", "--remote", "orgin"), "no remote 'orgin'", "Remotes here: origin"),
    "an unknown command": (("rum",), "Did you mean 'run'?", "--help"),
    "an unknown command unlike any": (("xyzzy",), "there is no command 'xyzzy'.", "--help"),
    "an unknown option": (("run", "noop", "--force"), "--force", "--help"),
    "no preset": (("run",), "PRESET", "--help"),
    "a request that is none": (("status", "nothing-like-it"), "no request fits", "kakeya list"),
    "no request at all": (("wait",), "no request was sent", "kakeya run noop"),
    "a folder that is none": (("-C", "nowhere", "list"), "nowhere is not a folder", "-C"),
    "a preset to show that is none": (("presets", "nop"), "there is no preset 'nop'", "Did you mean noop?"),
}


@pytest.mark.rows(14)
@pytest.mark.parametrize(("args", "message", "fix"), USAGE.values(), ids=USAGE)
def test_a_mistake_ends_with_2_says_what_helps_and_sends_nothing(kakeya, clone, bus, git, args, message, fix):
    done = kakeya(clone, *args)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("error: ")
    said = " ".join(done.stderr.split())
    assert message in said
    assert fix in said
    assert git(bus, "for-each-ref", "refs/heads/mac-bridge") == ""


def test_outside_a_repository_it_says_so(kakeya, tmp_path):
    done = kakeya(tmp_path, "list")
    assert done.returncode == 2
    assert "is not inside a git repository" in done.stderr
    assert "-C DIR" in done.stderr


def test_an_error_is_data_with_json(kakeya, clone):
    done = kakeya(clone, "run", "nop", "--json")
    assert done.returncode == 2
    assert error_of(done) == {
        "error": "there is no preset 'nop'", "code": "unknown_preset", "fix": "Did you mean noop?",
        "exit_code": 2, "safe_to_retry": False,
    }  # fmt: skip


def test_an_error_of_the_command_line_is_data_with_json(kakeya, clone):
    assert error_of(kakeya(clone, "run", "--json"))["code"] == "usage"


def test_a_remote_that_cannot_be_reached_ends_with_3(kakeya, clone, git):
    git(clone, "remote", "set-url", "origin", "/nowhere.git")
    done = kakeya(clone, "run", "noop", "--json")
    assert (done.returncode, error_of(done)["code"]) == (3, "unreachable")


def test_a_wait_in_vain_ends_with_3(kakeya, clone):
    done = kakeya(clone, "run", "noop", "--wait", "0.2", "--json")
    assert (done.returncode, error_of(done)["code"]) == (3, "no_answer_in_time")


@pytest.mark.parametrize("args", [("wait", "--timeout", "0"), ("run", "noop", "--wait=0")])
def test_a_wait_of_no_time_looks_once(kakeya, clone, args):
    kakeya(clone, "run", "noop")
    done = kakeya(clone, *args)
    assert done.returncode == 3
    assert "no runner took" in done.stderr


@pytest.mark.parametrize(
    ("args", "hint"),
    [
        (("--wait", "noop"), "put it first: kakeya run noop --wait"),
        (("--wait", "nop"), "put it first: kakeya run noop --wait"),
        (("noop", "--wait", "15min"), "write 90s, 15m, 2h or 7d"),
        (("noop", "--wait", "soon"), "'soon' is not a time span"),
    ],
)
def test_a_word_after_wait_that_is_no_time_span_gets_a_hint(kakeya, clone, git, bus, args, hint):
    done = kakeya(clone, "run", *args)
    assert done.returncode == 2
    assert hint in done.stderr
    assert ("If you meant the preset" in done.stderr) == ("first" in hint)
    assert "mac-bridge" not in git(bus, "branch", "--list")


def test_a_remote_that_declines_ends_with_4(kakeya, clone, bus):
    hook = bus / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    done = kakeya(clone, "run", "noop", "--json")
    assert (done.returncode, error_of(done)["code"]) == (4, "no_push_right")


def test_a_bug_of_ours_ends_with_70_and_looks_like_one(kakeya, clone, monkeypatch):
    monkeypatch.setattr(Client, "list", lambda *_args: 1 / 0)
    done = kakeya(clone, "list", "--json")
    assert done.returncode == 70
    assert "Traceback" in done.stderr
    assert error_of(done)["code"] == "bug"


def test_a_request_that_is_sent_prints_its_branch_alone(kakeya, clone, bus, git):
    done = kakeya(clone, "run", "noop")
    assert done.returncode == 0
    branch = done.stdout.removesuffix("\n")
    assert git(bus, "rev-parse", f"refs/heads/{branch}")
    assert f"next: kakeya wait {branch}" in done.stderr


def test_a_suffix_with_a_dash_is_taken(kakeya, clone):
    assert kakeya(clone, "run", "noop", "--suffix=-b876").stdout.endswith("-b876\n")


def test_without_a_runner_the_read_commands_print_json_and_nothing_else(kakeya, clone):
    [sent] = ndjson(kakeya(clone, "run", "noop", "--json").stdout)
    assert sent["event"] == "sent"
    status = json.loads(kakeya(clone, "status", "--json").stdout)
    assert (status["state"], status["branch"]) == ("requested", sent["branch"])
    assert [found["branch"] for found in ndjson(kakeya(clone, "list", "--json").stdout)] == [sent["branch"]]
    assert json.loads(kakeya(clone, "logs", "--json").stdout)["log"] == ""
    verified = kakeya(clone, "verify", "--json")
    assert (verified.returncode, json.loads(verified.stdout)["holds"]) == (1, False)
    assert json.loads(kakeya(clone, "gc", "--json").stdout) == {"dry_run": False, "branches": []}
    assert json.loads(kakeya(clone, "cancel", "--json").stdout)["detail"].startswith(
        "cancelled by the requester"
    )
    assert json.loads(kakeya(clone, "presets", "noop", "--json").stdout)["name"] == "noop"
    assert len(json.loads(kakeya(clone, "presets", "--json").stdout)) >= 4


@pytest.mark.bus
def test_a_snapshot_names_the_untracked_files_that_it_leaves_out(kakeya, clone):
    for name in (".env", *(f"file-{i}" for i in range(9))):
        (clone / name).write_text("x")
    done = kakeya(clone, "run", "noop", "--snapshot")
    assert done.returncode == 0
    assert (
        "untracked files were not sent: .env, file-0, file-1, file-2, file-3 and 5 more. To send a file"
        in done.stderr
    )


@pytest.mark.bus
def test_a_request_that_is_cancelled_before_a_runner_took_it_ends_with_6(kakeya, clone, client, monkeypatch):
    monkeypatch.setattr("bridge.requests.follow.CONFIRM_S", 0.0)
    client.run("noop")
    cancelled = kakeya(clone, "cancel")
    assert (cancelled.returncode, "no runner had taken it" in cancelled.stderr) == (0, True)
    waited = kakeya(clone, "wait")
    assert (waited.returncode, "there is no answer to verify" in waited.stderr) == (6, True)
    answer = ndjson(kakeya(clone, "wait", "--json").stdout)[-1]
    assert (answer["event"], answer["exit_code"], answer["holds"]) == ("answer", 6, None)
    assert kakeya(clone, "logs").returncode == 0


@pytest.mark.bus
def test_a_followed_log_that_comes_in_pieces_commands_no_workflow(kakeya, clone, client):
    """Whoever may push writes pieces that no runner has cleaned."""
    run, git = client.run("noop"), client.git
    branch = client.view(run.branch)
    for i, piece in enumerate((b"a\n:", b":error::b\n#", b"#[error]c\n\xe2\xa0\x80:", b":add-mask::d\n")):
        state = wire.StateFile(
            schema_version=2, state=wire.State.RUNNING, branch=run.branch, request=branch.request, salt=f"{i}", token=1,
            sequence=i, lease_s=60.0, runner=wire.Runner(id="i", instance="x", version="1"), at="t",
        )  # fmt: skip
        tree = objects.overlay(
            git, f"{branch.tip}^{{tree}}", {wire.STATE: state.to_bytes(), wire.STREAM: piece}
        )
        who = objects.Identity("A Forger", "forger@example.invalid")
        tip = objects.commit(git, tree, [branch.tip], "a state\n", who)
        git("push", "--quiet", "origin", f"{tip}:refs/heads/{run.branch}")
        branch = client.view(run.branch)

    done = kakeya(clone, "logs", "-f", "--timeout", "0s")
    assert done.returncode == 3
    assert done.stdout == "a\n: :error::b\n## [error]c\n : :add-mask::d\n"


@pytest.mark.long
@pytest.mark.bus
def test_the_whole_path_as_json(kakeya, clone, runners, tmp_path):
    runners.start()
    done = kakeya(clone, "run", "noop", "--wait", "60", "--json")
    assert done.returncode == 0
    events = ndjson(done.stdout)
    assert [event["event"] for event in events[:2]] == ["sent", "state"]
    assert events[-1]["state"] == "succeeded"
    assert "".join(event.get("log", "") for event in events) == "nothing was asked for and nothing was done\n"
    for command in (("wait",), ("logs", "-f")):
        again = kakeya(clone, *command, "--json")
        assert (again.returncode, ndjson(again.stdout)[-1]["state"]) == (0, "succeeded")
    fetched = json.loads(kakeya(clone, "fetch", "--out", str(tmp_path / "out"), "--json").stdout)
    assert fetched["result"]["state"] == "succeeded"
    assert all(Path(clone, path).exists() for path in fetched["files"])
    assert json.loads(kakeya(clone, "verify", "--json").stdout)["holds"] is True


def test_json_goes_to_standard_output_alone(clone):
    process = start(clone, "run", "noop", "--wait", "0", "--json")
    out, said = process.communicate(timeout=60)
    assert process.returncode == 3
    assert [line.get("event") for line in ndjson(out)] == ["sent", "state", None]
    assert said.startswith("error: no runner took")


@pytest.mark.bus
def test_the_whole_path_for_people(kakeya, clone, runners, monkeypatch):
    runners.start()
    done = kakeya(clone, "run", "noop", "--wait")
    assert done.returncode == 0
    assert done.stdout == "nothing was asked for and nothing was done\n"
    assert [word for word in ("requested", "succeeded", "next: kakeya fetch") if word in done.stderr] != []
    assert kakeya(clone, "logs").stdout == "nothing was asked for and nothing was done\n"
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", sys.stdout)
        terminal = kakeya(clone, "logs", "-f").stdout.splitlines()
    assert terminal[-2] == "nothing was asked for and nothing was done"
    assert terminal[-1].startswith("succeeded")
    assert "succeeded" in kakeya(clone, "status").stdout
    assert "succeeded" in kakeya(clone, "list").stdout
    assert "not signed" in kakeya(clone, "verify").stdout
    assert kakeya(clone, "fetch").stdout.startswith("kakeya-results/noop-")
    assert "had already ended" in kakeya(clone, "cancel").stderr


@pytest.mark.rows(1)
@pytest.mark.bus
@pytest.mark.parametrize(
    ("job", "code"),
    [
        ({"steps": [{"argv": ["/bin/false"]}]}, 1),
        ({"steps": [{"argv": ["/bin/sleep", "60"]}], "timeout_s": 1}, 124),
        ({"steps": [{"argv": ["/bin/true"]}], "collect": ["results/research/x.json"], "gate": "reports"}, 7),
        ({"steps": [{"argv": ["/bin/true"]}], "code": "request"}, 4),
    ],
    ids=["failed", "timed out", "gate incomplete", "refused"],
)
def test_a_wait_ends_with_the_code_that_the_state_stands_for(
    kakeya, clone, runners, presets, monkeypatch, job, code
):
    folder = str(presets(job=job))
    monkeypatch.setenv("KAKEYA_PRESETS", folder)
    runners.start(preset_folder=folder)
    assert kakeya(clone, "run", "job", "--wait", "60").returncode == code
    for command in (("wait",), ("logs", "-f")):
        assert kakeya(clone, *command).returncode == code


@pytest.mark.long
@pytest.mark.bus
def test_a_cancelled_request_ends_with_6(kakeya, clone, runners):
    kakeya(clone, "run", "noop")
    kakeya(clone, "cancel")
    runners.start()
    assert kakeya(clone, "wait", "--timeout", "60").returncode == 6


def test_an_interrupted_wait_ends_with_130_and_no_noise(kakeya, clone):
    kakeya(clone, "run", "noop")
    waiting = start(clone, "wait")
    assert "requested" in waiting.stderr.readline()
    time.sleep(0.3)
    waiting.send_signal(signal.SIGINT)
    _, said = waiting.communicate(timeout=120)
    assert waiting.returncode == 130
    assert "Traceback" not in said
    assert said.endswith("interrupted\n")


def test_an_interrupted_push_names_the_request_that_it_may_have_sent(clone, bus, git, wait_for):
    hook = bus / "hooks" / "post-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexec sleep 300\n")
    hook.chmod(0o755)
    sending = start(clone, "run", "noop")
    wait_for(lambda: "noop" in git(bus, "for-each-ref"))
    sending.send_signal(signal.SIGINT)
    _, said = sending.communicate(timeout=120)
    assert sending.returncode == 130
    branch = git(bus, "for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads/mac-bridge")
    assert f"{branch} may have been sent\nnext: kakeya status {branch}" in said


@pytest.mark.rows(1)
@pytest.mark.parametrize("args", [("presets",), ("list", "--json")])
def test_a_reader_that_has_had_enough_hears_no_complaint(kakeya, clone, args):
    kakeya(clone, "run", "noop")
    process = start(clone, *args)
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    process.wait(120)
    assert said == ""


HEAVY = (
    "pydantic",
    "requests",
    "rich",
    "yaml",
    "git",
    "pygit2",
    "dulwich",
    "numpy",
    "mlx",
    "runner",
    "engine",
    "psutil",
)


@pytest.mark.parametrize("args", [["--help"], ["--version"]], ids=str)
def test_help_imports_nothing_heavy(args):
    code = f"""
import sys
from bridge.cli import cli
try:
    cli.main({args!r}, prog_name="kakeya")
except SystemExit:
    pass
print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_loads_and_says_in_its_help_what_the_table_says(name):
    line = COMMANDS[name]
    command = cli.get_command(click.Context(cli), name)
    context = click.Context(command, info_name=name)
    first = " ".join(command.get_help(context).split("\n\n")[1].split())
    assert first.startswith(line.split(";")[0].removesuffix("."))


def test_help_lists_every_command_with_its_line():
    text = " ".join(cli.get_help(click.Context(cli, info_name="kakeya")).split())
    for name, line in COMMANDS.items():
        assert f"{name} {line}" in text


def test_help_tells_the_table_of_exit_codes():
    text = " ".join(cli.get_help(click.Context(cli, info_name="kakeya")).split())
    for code in (
        "0 succeeded",
        "1 ",
        "2 usage",
        "3 infrastructure",
        "4 refused",
        "5 ",
        "6 cancelled",
        "70 ",
        "124 ",
        "130 ",
    ):
        assert code in text


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize("program", ["kakeya", "kakeya-runner", "kakeya-engine"])
def test_completion_prints_a_script(kakeya, tmp_path, shell, program):
    done = kakeya(tmp_path, "completion", shell, "--program", program)
    assert done.returncode == 0
    variable = f"_{program.upper().replace('-', '_')}_COMPLETE"
    assert f"{variable}={shell}_complete" in done.stdout


def test_the_version_is_printed(kakeya, tmp_path):
    commit = r"\(commit [0-9a-f]{12}(, with uncommitted changes)?\)"
    assert re.fullmatch(rf"kakeya \d+\.\d+\.\d+\S* {commit}\n", kakeya(tmp_path, "--version").stdout)


def test_at_the_end_of_the_process_python_does_not_look_for_garbage(clone):
    program = (
        "import atexit, gc, sys\n"
        "atexit.register(lambda: print(gc.get_freeze_count() > 1000))\n"
        "sys.argv[1:] = ['presets', 'noop']\n"
        "from bridge.cli import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], cwd=clone, capture_output=True, text=True, check=True
    )

    # What was registered first is called last.
    assert done.stdout.splitlines()[-1] == "True"


@pytest.mark.parametrize(
    ("words", "safe"),
    [
        (["noop"], True),  # nothing was sent
        (["noop", "-p", "x=1"], False),
        (["noop", "--wait", "1s"], False),
        (["noop", "--wait", "1s", "--idempotency-key", "k"], True),
    ],
)
def test_an_error_says_whether_the_same_call_may_be_repeated(clone, bus, words, safe, capsys):
    if "--wait" not in words:
        bus.rename(bus.with_name("away"))

    with pytest.raises(SystemExit):
        run_program(cli, "kakeya", ["-C", str(clone), "run", "--json", *words])

    error = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert error["safe_to_retry"] is safe, error


def test_each_exit_code_says_whether_to_repeat():
    codes = [code for code in ExitCode if safe_to_retry(code)]

    assert codes == [ExitCode.INFRASTRUCTURE]
    assert not safe_to_retry(ExitCode.INFRASTRUCTURE, sends_again=True)


def test_a_preset_is_shown_with_what_it_must_leave(clone, presets, capsys, monkeypatch):
    folder = presets(mine={"steps": [{"argv": ["/bin/true"]}], "leaves": ["out/*.txt", "x"]})
    monkeypatch.setenv("KAKEYA_PRESETS", str(folder))

    for words in (["mine"], ["mine", "--json"]):
        with pytest.raises(SystemExit):
            run_program(cli, "kakeya", ["-C", str(clone), "presets", *words])

    shown = capsys.readouterr().out
    assert re.search(r"^leaves +out/\*\.txt, x *$", shown, re.MULTILINE)
    assert json.loads(shown.splitlines()[-1])["leaves"] == ["out/*.txt", "x"]
