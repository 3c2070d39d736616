"""Prepares GitHub's own self-hosted runner: the script of its job-started hook, and the manual steps."""

import shlex
import sys
from pathlib import Path

from bridge.common import environment
from bridge.errors import UsageError
from runner.service.actions_hook import VARIABLES
from runner.service.plan import Plan, Service, write
from runner.service.settings import search_path

_LABELS = "kakeya-mac-m4"
_VARIABLE = "ACTIONS_RUNNER_HOOK_JOB_STARTED"
_SCRIPT = "job-started.sh"


def hook_script(python: Path, policy: Path) -> bytes:
    """Return the script. It does not depend on the folder, the PATH or the environment in which it starts.

    It passes on GitHub's own variables and no others. HOME and PATH are those of the user who installs it.
    """
    words = {"home": environment.home(), "path": search_path(), "python": python, "policy": policy}
    arguments = "".join(f'    {name}="${name}" \\\n' for name in VARIABLES)
    template = Path(__file__).with_name(_SCRIPT).read_text(encoding="ascii")
    quoted = {name: shlex.quote(str(word)) for name, word in words.items()}
    return template.format(variables=arguments, **quoted).encode()


def hook(policy: Path) -> Service:
    """Return the script beside the policy. A person has to name it in the settings of GitHub's runner.

    UsageError if the path has a space, because GitHub's runner does not quote it.
    """
    file = policy.absolute().with_name(_SCRIPT)
    if any(character.isspace() for character in str(file)):
        raise UsageError(f"GitHub's runner takes no path with a space in it: {file}", fix="Move the policy.")
    line = f"{_VARIABLE}={file}"
    return Service(
        files={file: hook_script(Path(sys.executable), policy.absolute())},
        mode=0o700,
        then=[f"Add this line to the file .env in the folder of GitHub's runner, and restart that: {line}"],
        then_removed=[f"Remove {_VARIABLE} from GitHub's runner too: without the script it starts no job."],
    )


def install(folder: Path, policy: Path, root: Path | None = None) -> Plan:
    """Return the plan that installs the job-started hook for the listener in ``folder``.

    Steps that need the network, GitHub's token or another user's rights are listed as commands for a person.
    """
    script = hook(policy)
    file = folder / ".env"
    old = file.read_text(encoding="utf-8") if file.is_file() else ""
    lines = [line for line in old.splitlines() if not line.startswith(f"{_VARIABLE}=")]
    lines += [f"{_VARIABLE}={path}" for path in script.files]
    steps = [*script.install(root).steps]
    if folder.is_dir():
        steps.append(write(file, "".join(f"{line}\n" for line in lines).encode(), mode=0o600))
    return Plan(steps, _by_hand(folder))


def _by_hand(folder: Path) -> list[str]:
    is_mac = sys.platform == "darwin"
    sudo = "" if is_mac else "sudo "
    lacks = {name for name in ("config.sh", ".runner", ".service") if not (folder / name).is_file()}
    download = "the repository's Settings, Actions, Runners has the commands"
    config = "./config.sh --url https://github.com/OWNER/REPO --token TOKEN --labels"
    steps = (
        ("config.sh" in lacks, f"download GitHub's runner into {folder}: {download}"),
        (".runner" in lacks, f"cd {folder} && {config} {_LABELS}"),
        (
            ".service" in lacks,
            f"cd {folder} && {sudo}./svc.sh install && {sudo}./svc.sh start   # starts it after each reboot",
        ),
        (
            not is_mac,
            f"sudo systemctl edit $(cat {folder}/.service)   # add: [Service] Restart=always RestartSec=10",
        ),
        (
            True,
            "name the jobs that may run under `actions` in the policy: docs/operations.md, The job-started hook",
        ),
    )
    return [step for is_needed, step in steps if is_needed]
