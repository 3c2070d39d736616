"""The policy file: finds it, checks who may change it, and writes a first one."""

import json
import platform
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from bridge.bus.hosts.address import Kind, parse
from bridge.common import environment
from bridge.common.validation import describe_all
from bridge.common.whole_files import atomic_write
from bridge.errors import PolicyError
from bridge.system.strict_yaml import read_yaml
from runner.ownership import check_owned, check_presets_owned
from runner.policy.model import Bus, Policy


def default_path() -> Path:
    """Return the default path of the policy: KAKEYA_RUNNER_POLICY, else in the user's configuration folder."""
    named = environment.get("KAKEYA_RUNNER_POLICY")
    return Path(named) if named else environment.config_home() / "runner.yaml"


def load_policy(path: Path | None = None) -> Policy:
    """Read the policy.

    Raises:
        PolicyError: the policy is missing or invalid, or others may change it, the presets or the state folder. The
            message names the file and the fault.
    """
    path = path or default_path()
    if not path.exists():
        named = "" if path == default_path() else f"--policy {path} "
        fix = f"Write one: kakeya-runner {named}init --bus URL"
        raise PolicyError(f"there is no policy at {path}, and without one nothing runs", fix=fix)
    check_owned(path, "the policy")
    written = read_yaml(path, PolicyError)
    try:
        policy = Policy.model_validate(written)
    except ValidationError as error:
        fix = "docs/policy.md describes every key."
        raise PolicyError(f"{path}: {describe_all(error, Policy, written)}", fix=fix) from error
    check_owned(policy.state.parent, "the state folder")
    if policy.preset_folder:
        check_presets_owned(policy.preset_folder)
    for key in policy.trust.runners:
        check_owned(key, "the list of runners' keys")
    return policy


def write_template(
    path: Path,
    url: str,
    runner_id: str | None = None,
    *,
    interpreter: Path | None = None,
    version: str | None = None,
    forward: Sequence[str] = (),
) -> None:
    """Write a policy with comments; PolicyError if one exists or the URL is not supported."""
    if path.exists():
        raise PolicyError(f"{path} exists already", fix="Edit it, or name another file with --policy.")
    try:
        Bus(url=url, forward=[*forward])
    except ValidationError as error:
        written = {"url": url, "forward": [*forward]}
        raise PolicyError(f"nothing was written: {describe_all(error, Bus, written)}") from error
    if parse(url).kind is not Kind.URL and Path(url).exists():
        # Use an absolute path, because the service is started in another folder.
        url = str(Path(url).absolute())
    name = re.sub(r"[^A-Za-z0-9._-]", "-", runner_id or platform.node()).strip("-.")[:64] or "runner"
    labels = f"{platform.system()}, {platform.machine()}".replace("Darwin", "macOS").replace("arm64", "ARM64")
    path.parent.mkdir(parents=True, exist_ok=True)
    # Every JSON text is a valid YAML text, whatever it contains.
    quoted = {
        "url": json.dumps(url),
        "interpreter": json.dumps(str(interpreter or sys.executable)),
        "version": json.dumps(version or platform.python_version()),
        "forward": f"forward: {json.dumps([*forward])}" if forward else '# forward: ["claude/*"]',
    }
    template = Path(__file__).with_name("template.yaml").read_text(encoding="utf-8")
    text = template.format(id=name, labels=labels, **quoted)
    with atomic_write(path) as part:
        part.write_text(text, encoding="utf-8")
    path.chmod(0o600)
