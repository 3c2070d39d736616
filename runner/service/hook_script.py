"""Writes the script that ACTIONS_RUNNER_HOOK_JOB_STARTED names."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from bridge.errors import UsageError
from runner.service.actions_hook import VARIABLES
from runner.service.plan import Plan, Remove, Write, below
from runner.service.settings import search_path


def hook_script(python: Path, policy: Path) -> bytes:
    """Return the script. It does not depend on the folder, the PATH or the environment in which it starts.

    It passes on only GitHub's own variables. HOME and PATH are those of the user who installs it.
    """
    words = {"home": Path.home(), "path": search_path(), "python": python, "policy": policy}
    arguments = "".join(f'    {name}="${name}" \\\n' for name in VARIABLES)
    template = Path(__file__).with_name("job-started.sh").read_text(encoding="ascii")
    quoted = {name: shlex.quote(str(word)) for name, word in words.items()}
    return template.format(variables=arguments, **quoted).encode()


def install(policy: Path, root: Path | None = None) -> Plan:
    """Return the plan that writes the script. A person has to name it in the settings of GitHub's runner.

    Raises:
        UsageError: the path has a space, because GitHub's runner does not quote it.
    """
    file = path_of_script(policy)
    if any(character.isspace() for character in str(file)):
        raise UsageError(f"GitHub's runner takes no path with a space in it: {file}", fix="Move the policy.")
    script = hook_script(Path(sys.executable), policy.absolute())
    line = f"ACTIONS_RUNNER_HOOK_JOB_STARTED={file}"
    then = f"Add this line to the file .env in the folder of GitHub's runner, and restart that: {line}"
    return Plan([Write(below(root, file), script, mode=0o700)], (then,))


def uninstall(policy: Path, root: Path | None = None) -> Plan:
    """Return the plan that removes the script."""
    note = "Remove ACTIONS_RUNNER_HOOK_JOB_STARTED from GitHub's runner too: without the script it starts no job."
    return Plan([Remove(below(root, path_of_script(policy)))], (note,))


def path_of_script(policy: Path) -> Path:
    """Return the script's path, beside the policy."""
    return policy.absolute().with_name("job-started.sh")
