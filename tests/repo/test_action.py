"""The GitHub Action, its steps run as GitHub would, against a bus and a real runner."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from bridge.bus import wire
from bridge.bus.wire import State
from bridge.client import Client
from runner.state import signing_key
from tests.repo import host_api
from tests.repo.composite import Job
from tests.system import program

pytestmark = [
    pytest.mark.bus,
    pytest.mark.skipif(not program("jq") or not program("bash"), reason="bash or jq is not on the PATH"),
]

ROOT = Path(__file__).parents[2]
ACTION = ROOT / ".github" / "actions" / "run"
PYTHON = "${ENV:KAKEYA_MAC_PYTHON}"
SHOUT = (
    "print('::error::gotcha\\n::set-output name=branch::evil\\n##[error]x\\n::stop-commands::y\\n::endgroup::\\n"
    "a\\r::add-mask::a\\n   ::add-mask::e\\nso ##[add-mask]o\\n::debug::x\\u2028::warning::y\\n"
    "</details></table>```<script>alert(1)</script><img src=x onerror=y>\\n````\\n# title\\n"
    "[click](https://evil.invalid) ![](https://evil.invalid/x.png) @team <https://evil.invalid> www.evil.invalid\\n"
    "``` </details>', end='')"
)


@pytest.fixture
def jobs(presets):
    number = {"type": "int", "min": 1, "max": 50, "default": 5}
    return str(presets(
        noop={"steps": [{"argv": ["/bin/echo", "done"]}]},
        count={"params": {"n": number, "m": number}, "steps": [{"argv": ["/bin/echo", "{n}", "{m}"]}]},
        sleep={"steps": [{"argv": [PYTHON, "-c", "import time; print('on', flush=True); time.sleep(90)"]}]},
        shout={"steps": [{"argv": [PYTHON, "-c", SHOUT]}]},
        elsewhere={"labels": ["gpu"], "steps": [{"argv": ["/bin/true"]}]},
        gated={"steps": [{"argv": ["/bin/true"]}], "collect": ["results/research/x.json"], "gate": "reports"},
    ))  # fmt: skip


@pytest.fixture
def key(runners):
    """The public key with which the runner `one` signs."""
    state = runners.folder / "state-one"
    signing_key.make_key(state)
    return (state / signing_key.PUBLIC).read_text()


@pytest.fixture
def served(runners, jobs, key):
    return runners.start(preset_folder=jobs, bus={"poll_s": 0.1, "pushes_per_minute": 600})


@pytest.fixture
def use(clone, jobs, tmp_path):
    """Make a use of the action in a clone."""
    program = tmp_path / "kakeya"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m bridge "$@"\n')
    program.chmod(0o755)

    def make(**inputs: str) -> Job:
        named = {name.replace("_", "-"): value for name, value in inputs.items()}
        env = {**os.environ, "KAKEYA_PRESETS": jobs}
        temp = tmp_path / f"temp-{len(list(tmp_path.glob('temp-*')))}"
        return Job(ACTION, {"kakeya": str(program), "wait": "60s"} | named, env, clone, temp)

    return make


@pytest.mark.long
def test_a_signed_answer_ends_with_zero_and_leaves_everything(use, served, key, clone):
    job = use(preset="count", params="n=7\r\n\n  \nm=8\n", public_key=key, folder="out")

    job.run()

    assert not job.failed, job.log
    branch = job.outputs["branch"]
    assert job.outputs == {
        "branch": branch, "state": "succeeded", "exit-code": "0", "signed": "true", "gate": "", "folder": "out",
        "verified": job.outputs["verified"], "voucher": "signed by one's key",
    }  # fmt: skip
    assert "signed with the pinned key" in job.outputs["verified"]
    assert (clone / "out" / wire.RESULT).exists()
    assert "### count: succeeded" in job.summary
    assert "signed with a pinned key" in job.summary
    assert "\n7 8\n" in job.log
    assert [name for name, _ in job.commands] == ["group", "endgroup", "group", "endgroup"]
    assert Client(clone).find(branch).status().state is State.SUCCEEDED


@pytest.mark.long
def test_a_sweep_is_one_use(use, served, key, clone):
    job = use(preset="count", params="n=7,9\nm=8", public_key=key, folder="out")

    job.run()

    assert not job.failed, job.log
    assert len(job.outputs["branch"]) == 12
    assert {name: job.outputs[name] for name in ("state", "exit-code", "signed", "verified", "folder")} == {
        "state": "succeeded", "exit-code": "0", "signed": "true", "verified": "2 of 2 answers hold", "folder": "out",
    }  # fmt: skip
    assert len([*(clone / "out").iterdir()]) == 2
    assert "\n7 8\n" in job.log
    assert "\n9 8\n" in job.log
    assert "2 runs compared" in job.summary


@pytest.mark.long
def test_the_action_ends_as_the_job_did(use, served, key):
    job = use(preset="gated", public_key=key)

    job.run()

    assert (job.outputs["state"], job.outputs["exit-code"]) == ("gate_incomplete", "7")
    assert job.failed
    assert job.ran[-1] == "End as the job did"
    assert "### gated: gate\\_incomplete" in job.summary
    assert ("error", "The job ended as gate_incomplete, with exit code 7.") in job.commands


def test_a_request_that_is_wrong_fails_and_asks_for_nothing(use, git, bus):
    job = use(preset="noop", params="n=1")

    job.run()

    assert job.failed
    assert "noop has no parameter 'n'" in job.log
    assert job.outputs["branch"] == ""
    assert job.ran == ["Install the client", "Ask for the job"]
    assert git(bus, "for-each-ref", "refs/heads/mac-bridge/") == ""


def test_inputs_are_words_and_no_options_or_commands(use, clone):
    for inputs in (
        {"preset": "noop", "params": "--ref=main"},
        {"preset": "noop", "params": "$(touch pwned)=1\n; touch pwned\n`touch pwned`=1"},
        {"preset": "-p"},
        {"preset": "$(touch pwned); touch pwned; `touch pwned`"},
    ):
        job = use(**inputs)
        job.run()
        assert job.failed, inputs
        assert not (clone / "pwned").exists(), inputs


@pytest.mark.long
def test_an_answer_without_a_signature_fails_unless_it_is_allowed(use, runners, jobs):
    runners.start(preset_folder=jobs, bus={"poll_s": 0.1, "idle_poll_s": 0.1})
    for required in ("true", "false"):
        job = use(preset="noop", require_signature=required)

        job.run()

        assert job.failed is (required == "true")
        assert job.outputs["exit-code"] == ("1" if required == "true" else "0")
        assert job.outputs["signed"] == "false"


@pytest.mark.long
def test_an_answer_signed_with_another_key_does_not_hold(use, served, runners):
    other = runners.folder / "state-other"
    signing_key.make_key(other)
    job = use(preset="noop", public_key=(other / signing_key.PUBLIC).read_text())

    job.run()

    assert job.failed
    assert job.outputs["exit-code"] == "1"
    assert job.outputs["verified"].startswith("NOT verified: ")
    assert job.outputs["folder"] == ""
    assert "the answer does not hold" in job.summary


def test_a_key_that_cannot_be_read_ends_before_anything_is_sent(use, clone):
    job = use(preset="noop", public_key="ssh-ed25519 of another kind")

    job.run()

    assert job.ran == ["Install the client", "Ask for the job"]
    assert job.failed
    assert "kakeya-runner.pub holds no public key" in job.log
    assert Client(clone).list() == []


def test_without_jq_nothing_is_sent(use, clone, tmp_path):
    (tmp_path / "bin").mkdir()
    for name in ("bash", "git", "sh"):
        (tmp_path / "bin" / name).symlink_to(program(name))
    job = use(preset="noop")
    job.env = {**job.env, "PATH": str(tmp_path / "bin")}

    job.run()

    assert job.ran == ["Install the client"]
    assert job.commands == [
        ("error", "This runner has no jq, which the action needs. Install it in a step before.")
    ]


@pytest.mark.long
def test_what_a_job_prints_commands_nothing(use, served, key, clone):
    job = use(preset="shout", public_key=key, folder="out\nbranch=evil")

    job.run()

    assert "gotcha" in job.log
    # The action's own error is about the folder: its line break makes no output either.
    *groups, error = job.commands
    assert [name for name, _ in groups] == ["group", "endgroup", "group", "endgroup"]
    assert error[0] == "error"
    assert "folder" in error[1]
    assert job.outputs["branch"].startswith("mac-bridge/shout-")
    assert job.outputs["folder"] == ""
    assert not any(clone.glob("out*"))


def test_what_the_server_says_to_a_push_commands_nothing(use, bus):
    hook = bus / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\nprintf '::add-mask::e\\n##[add-mask]o\\n\\r::error::gotcha\\n' >&2\nexit 1\n")
    hook.chmod(0o755)
    job = use(preset="noop")

    job.run()

    assert job.failed
    assert "gotcha" in job.log or "add-mask" in job.log
    assert job.commands == []


def test_a_token_that_cannot_push_fails_the_step_and_asks_for_nothing(use, git, bus):
    """As in a pull request from a fork."""
    hook = bus / "hooks" / "pre-receive"
    hook.write_text(
        "#!/bin/sh\necho 'Permission to OWNER/REPO.git denied to github-actions[bot].' >&2\nexit 1\n"
    )
    hook.chmod(0o755)
    job = use(preset="noop")

    job.run()

    assert (job.failed, job.code) == (True, 4)
    assert "Permission to OWNER/REPO.git denied" in job.log
    assert "contents: write" in job.log
    assert "--prefix" not in job.log
    assert "mac-bridge/" not in git(bus, "for-each-ref")


ANSWER = {
    "event": "answer", "state": "succeeded", "exit_code": 0, "signed": True,
    "verified": "fine\nexit-code=7\r\nbranch=evil\r::add-mask::e\x85x=1", "gate": {"verdict": "ACCEPTED\nfolder=/etc"},
}  # fmt: skip


def test_line_breaks_in_an_answer_make_no_outputs(use, clone, tmp_path):
    """Our program prints none: this one stands for a program that would."""
    liar = tmp_path / "liar"
    (tmp_path / "answer").write_text(json.dumps(ANSWER) + "\n")
    liar.write_text(
        f'#!/bin/sh\ncase "$*" in *" run "*) echo mac-bridge/noop-1-a ;; *" wait "*) cat {tmp_path}/answer ;; esac\n'
    )
    liar.chmod(0o755)
    job = use(preset="noop", kakeya=str(liar))

    job.run()

    assert job.outputs == {
        "branch": "mac-bridge/noop-1-a", "state": "succeeded", "exit-code": "0", "signed": "true", "folder": "",
        "verified": job.outputs["verified"], "gate": "ACCEPTED folder=/etc",
        "voucher": "",
    }  # fmt: skip
    assert job.outputs["verified"].startswith("fine exit-code=7  branch=evil ::add-mask::e")
    assert [name for name, _ in job.commands] == ["group", "endgroup", "group", "endgroup"]


def test_every_call_of_the_client_is_kept_from_commanding():
    """Its output goes into a file or a variable, or it is printed between marks."""
    for step in yaml.safe_load((ACTION / "action.yml").read_text())["runs"]["steps"]:
        stopped = False
        for line in step["run"].splitlines():
            stopped = (stopped or "::stop-commands::" in line) and "'\\n::%s::\\n'" not in line
            if re.search(r'(^|[ (])"\$KAKEYA" -C', line):
                assert "2>" in line or "quietly" in line or stopped, line


@pytest.mark.long
def test_a_cancelled_workflow_withdraws_its_request(use, served, key, clone, wait_for):
    job = use(preset="sleep", public_key=key)
    client = Client(clone)

    def runs() -> None:
        wait_for(lambda: any(one.state is State.RUNNING for one in client.list()), 60)

    job.run(cancel_during="wait", when=runs)

    assert job.ran[-1] == "Withdraw the request"
    assert client.find(job.outputs["branch"]).wait(60).state is State.CANCELLED


@pytest.mark.long
def test_a_workflow_that_is_cancelled_while_it_asks_withdraws_the_request_too(
    use, clone, bus, tmp_path, wait_for
):
    hook = bus / "hooks" / "pre-receive"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/pushing\nsleep 2\n")
    hook.chmod(0o755)
    job = use(preset="noop")

    job.run(cancel_during="request", when=lambda: wait_for((tmp_path / "pushing").exists, 60))

    assert job.ran == ["Install the client", "Ask for the job", "Withdraw the request"]
    (status,) = Client(clone).list()
    assert status.branch == job.outputs["branch"]
    assert "cancelled by the requester" in status.detail


def test_the_page_describes_every_input_and_output():
    page = (ROOT / "docs" / "actions.md").read_text(encoding="utf-8")
    about = yaml.safe_load((ACTION / "action.yml").read_text())

    tables = {name: page.split(f"## {name}\n")[1].split("\n## ")[0] for name in ("Inputs", "Outputs")}

    assert re.findall(r"^\| `([a-z-]+)` \|", tables["Inputs"], re.MULTILINE) == list(about["inputs"])
    assert re.findall(r"^\| `([a-z-]+)` \|", tables["Outputs"], re.MULTILINE) == list(about["outputs"])


def test_the_example_is_a_workflow_that_the_linters_take(tmp_path):
    (example,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "actions.md").read_text(), re.DOTALL)
    folder = tmp_path / ".github" / "workflows"
    folder.mkdir(parents=True)
    (folder / "example.yaml").write_text(example)
    programs = Path(sys.executable).parent
    schema = [
        programs / "check-jsonschema",
        "--builtin-schema",
        "vendor.github-workflows",
        folder / "example.yaml",
    ]
    audit = [programs / "zizmor", "--offline", "--no-progress", "--quiet", "--min-severity=medium", tmp_path]
    for argv in (schema, audit):
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    used = yaml.safe_load(example)["jobs"]["evaluate"]["steps"][1]
    assert used["with"].keys() <= yaml.safe_load((ACTION / "action.yml").read_text())["inputs"].keys()


# What YAML users write for a boolean. GitHub passes it on as it stands in the workflow.
TRUE = ("", "true", "True", "TRUE", "yes", "Yes", "on", "ON", "y", "1", " true ", "true\n")
FALSE = ("false", "False", "FALSE", "no", "No", "off", "OFF", "n", "0", " False ")


def test_a_boolean_is_read_as_yaml_reads_it(use):
    rows = [*((text, "true") for text in TRUE), *((text, "false") for text in FALSE)]
    for written, read in rows:
        job = use(preset="noop", require_signature=written)
        job.run(last="install")
        assert job.steps["install"]["require-signature"] == read, written


def test_what_is_no_boolean_ends_the_action_before_it_asks(use, clone):
    for written in ("maybe", "tru", "truefalse", "2", "null", "$(touch pwned)", "true false"):
        job = use(preset="noop", require_signature=written)

        job.run()

        assert job.failed, written
        assert job.ran == ["Install the client"]
        assert ("error", "The input require-signature must be true or false.") in job.commands
    assert not (clone / "pwned").exists()


@pytest.fixture
def api(bus, monkeypatch, tmp_path):
    """The host's API, for a pull request from the commit on main."""
    event = tmp_path / "event.json"
    with host_api.served(bus) as served:
        monkeypatch.setenv("GITHUB_API_URL", served.url)
        monkeypatch.setenv("GITHUB_SERVER_URL", "https://github.example")
        monkeypatch.setenv("GITHUB_REPOSITORY", host_api.REPOSITORY)
        monkeypatch.setenv("GITHUB_SHA", "0" * 40)
        monkeypatch.setenv("GITHUB_RUN_ID", "17")
        monkeypatch.setenv("GITHUB_EVENT_PATH", str(event))
        event.write_text(json.dumps({"pull_request": {"number": 7, "head": {"sha": "a" * 40}}}))
        yield served


@pytest.fixture
def publish(tmp_path):
    """Run the step that shows how a job ended."""

    def run(words: str, summary: str | None = "### noop\n", **env: str) -> str:
        shown = {
            "PUBLISH": words,
            "TOKEN": host_api.TOKEN,
            "PRESET": "noop",
            "CODE": "0",
            "STATE": "succeeded",
        }
        shown |= {"REFUSED": "false", "GATE": "", "VOUCHER": "unsigned", "RUNNER_TEMP": str(tmp_path), **env}
        if summary is not None:
            (tmp_path / "kakeya-summary.md").write_text(summary)
        argv = ["bash", str(ACTION / "publish.sh")]
        done = subprocess.run(argv, env={**os.environ, **shown}, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        return done.stdout

    return run


needs_curl = pytest.mark.skipif(not program("curl"), reason="curl is not on the PATH")


@needs_curl
@pytest.mark.long
def test_the_outcome_is_shown_on_the_pull_request_and_replaced_there(use, served, key, api):
    for params in ("n=7", "n=8"):
        job = use(
            preset="count", params=params, public_key=key, publish="status comment", token=host_api.TOKEN
        )
        job.run()
        assert not job.failed, job.log

    status = {
        "sha": "a" * 40, "state": "success", "description": "succeeded, signed by one's key",
        "context": "kakeya-bridge/count", "target_url": "https://github.example/OWNER/REPOSITORY/actions/runs/17",
    }  # fmt: skip
    assert api.statuses == [status, status]
    (comment,) = api.comments
    assert comment["body"].startswith("<!-- kakeya-bridge/count -->\n### count: succeeded")
    assert "n=8" in comment["body"].replace("\\", "")
    assert host_api.TOKEN not in job.log


@needs_curl
@pytest.mark.parametrize(
    ("ended", "state", "text"),
    [
        (
            {"GATE": "ACCEPTED", "VOUCHER": "signed by one's key"},
            "success",
            "succeeded, ACCEPTED, signed by one's key",
        ),
        (
            {"CODE": "5", "STATE": "gate_rejected", "GATE": "REJECTED"},
            "failure",
            "gate_rejected, REJECTED, unsigned",
        ),
        ({"CODE": "1", "REFUSED": "true"}, "failure", "the answer does not hold"),
        ({"CODE": "3", "STATE": "", "VOUCHER": ""}, "error", "no answer in time"),
        ({"CODE": "6", "STATE": "cancelled", "VOUCHER": "x" * 200}, "error", f"cancelled, {'x' * 129}"),
    ],
)
def test_a_status_says_how_it_ended(api, publish, ended, state, text):
    assert publish("status", **ended) == ""

    ((status, description),) = [(each["state"], each["description"]) for each in api.statuses]
    assert (status, description) == (state, text)
    assert api.comments == []


@needs_curl
def test_only_an_own_comment_about_the_preset_is_replaced(api, publish):
    mark = "<!-- kakeya-bridge/noop -->\n"
    others = [
        {"user": {"login": "a-stranger"}, "body": mark, "issue": "7"},
        {"user": {"login": "github-actions[bot]"}, "body": f"Not this one: {mark}", "issue": "7"},
        {"user": {"login": "github-actions[bot]"}, "body": mark, "issue": "8"},
        *({"user": {"login": "a-stranger"}, "body": "chat", "issue": "7"} for _ in range(120)),
    ]
    api.comments += [{"id": i, **comment} for i, comment in enumerate(others, 1)]
    before = [dict(comment) for comment in api.comments]

    for text in ("one", 'two $(id) `id` "quoted" \\ é\n', "three" * 20_000):
        assert publish("comment", text) == ""

    assert api.comments[:-1] == before
    body = api.comments[-1]["body"]
    assert body.startswith(f"{mark}threethree")
    assert len(body) < 65_536


@needs_curl
def test_what_cannot_be_shown_is_a_warning(api, publish, monkeypatch):
    api.refused = {"POST .*": 403}
    said = publish("status comment other").splitlines()
    assert [line.partition(" title")[0] for line in said] == ["::warning"] * 3
    assert "statuses: write" in said[0]
    assert "pull-requests: write" in said[1]
    api.refused = {"GET .*comments": 500}
    assert "could not be written" in publish("comment")
    assert api.comments == []
    # There is no pull request, or no summary.
    monkeypatch.setenv("GITHUB_EVENT_PATH", "/nowhere")
    assert publish("comment") == ""
    monkeypatch.setenv("GITHUB_API_URL", "http://127.0.0.1:1")
    assert publish("status").startswith("::warning")
