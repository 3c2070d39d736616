"""Git's setting ``kakeya.bus``: the buses that a clone uses, one a value, as ``REMOTE`` or ``LABEL=REMOTE``."""

import re

from bridge.errors import UsageError
from bridge.system import git_output
from bridge.system.git import Git

SETTING = "kakeya.bus"
MOST = 16

_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")


def read_setting(git: Git) -> dict[str, str]:
    """Return the listed buses, as ``{label: remote}``.

    Raises:
        UsageError: two have the same label, or there are too many.
    """
    values = git_output.settings(git("config", "-z", "--get-regexp", r"^kakeya\.bus$", ok=(0, 1, 128)).stdout)
    pairs: list[tuple[str, str]] = []
    for _, value in values:
        label, has_label, remote = value.partition("=")
        is_pair = has_label and remote and _LABEL.fullmatch(label)
        pairs.append((label, remote) if is_pair else ("", value))
    # A label may be given to a bus that another value lists without one.
    labels = {remote: label for label, remote in reversed(pairs) if label}
    listed: dict[str, str] = {}
    for _, remote in pairs:
        if remote in listed.values():
            continue
        label = labels.get(remote) or _label_of(remote)
        if label in listed:
            fix = f"Give it another label: git config --add {SETTING} LABEL={remote}"
            raise UsageError(f"git's setting {SETTING} gives two buses the label {label}", fix=fix)
        listed[label] = remote
    if len(listed) > MOST:
        raise UsageError(f"git's setting {SETTING} lists {len(listed)} buses; {MOST} are the most")
    return listed


def _label_of(remote: str) -> str:
    """Return a label for a remote's name or address: the name, or the last part of the address."""
    if _LABEL.fullmatch(remote):
        return remote
    last = re.split(r"[/:]", remote.rstrip("/"))[-1].removesuffix(".git")
    return _UNFIT.sub("-", last).strip("-.")[:40] or "bus"
