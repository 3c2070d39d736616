"""Whatever way the steps of a job end, the runner's own answer verifies."""

from __future__ import annotations

import pytest

from bridge.client import Client

pytestmark = pytest.mark.bus

SH = "/bin/sh"
# The steps of a preset, and the reason with which its job ends.
ENDS = {
    "missing": ([["/nowhere/program"]], "not_started"),
    "folder": ([["/usr"]], "not_started"),
    "no-program": ([["{plain}"]], "not_started"),
    "no-interpreter": ([["{script}"]], "not_started"),
    "second-missing": ([["/bin/true"], ["/nowhere/program"]], "not_started"),
    "fails": ([["/bin/false"]], "exit_code"),
    "says-not-found": ([[SH, "-c", "exit 127"]], "exit_code"),
    "killed": ([[SH, "-c", "kill -9 $$"]], "killed"),
    "slow": ([["/bin/sleep", "60"]], "timeout"),
    "quick": ([["/bin/true"], ["/bin/true"]], "ok"),
}


@pytest.fixture
def answers(client, keyed, presets, tmp_path):
    """Let one runner answer a request for each preset; return a client and the branches by preset."""
    plain, script = tmp_path / "plain", tmp_path / "script"
    plain.write_text("no program\n")
    script.write_text("#!/nowhere/sh\n")
    script.chmod(0o755)
    named = {"{plain}": str(plain), "{script}": str(script)}
    folder = presets(
        **{
            name.replace("-", "_"): {
                "timeout_s": 1 if name == "slow" else 60,
                "steps": [{"argv": [named.get(word, word) for word in argv]} for argv in steps],
            }
            for name, (steps, _) in ENDS.items()
        }
    )
    asking = Client(client.git.directory, presets=folder, public_key=keyed.key())
    branches = {name: asking.run(name).branch for name in ENDS}
    keyed.handle(preset_folder=str(folder))
    return asking, branches


@pytest.mark.long
def test_every_end_of_a_job_is_an_answer_that_verifies(answers):
    client, branches = answers
    wrong = {}
    for name, (_, code) in ENDS.items():
        client.view(branches[name])
        report = client.verify(branches[name])
        failed = [f"{check.name}: {check.message}" for check in report.checks if check.ok is not True]
        ended = client.result(branches[name]).reason.code
        if failed or ended != code:
            wrong[name] = (ended, failed)
    assert wrong == {}


def test_an_answer_of_an_earlier_runner_about_a_program_that_was_not_started_verifies(
    client, keyed, presets, forger
):
    folder = presets(missing={"steps": [{"argv": ["/nowhere/program"]}]})
    asking = Client(client.git.directory, presets=folder)
    branch = asking.run("missing").branch
    keyed.handle(preset_folder=str(folder), signed=False)
    asking.view(branch)
    (command,) = asking.result(branch).model_dump(mode="json")["commands"]
    assert command["seconds"] > 0
    forger.rewrite(branch, commands=[{**command, "seconds": 0.0}])
    asking.view(branch)
    assert asking.verify(branch).holds
