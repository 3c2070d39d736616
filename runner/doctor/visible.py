"""For ``check``: which files of this host the jobs of the allowed presets can see."""

from collections.abc import Iterator

from bridge.checklist import Check
from bridge.presets import Presets
from runner.job.sandbox import Sandbox, hub
from runner.job.workspace import workspace
from runner.policy import Policy


def visible_files(box: Sandbox, policy: Policy, presets: Presets) -> Iterator[Check]:
    """Yield what jobs can read and write, and notes on settings whose paths jobs do not see in full."""
    if box.kind == "off":
        message = "jobs can read and write every file that this user can; nothing is hidden from them"
        yield Check("visible", None, message, "Set `sandbox: require` in the policy.")
        return
    allowed = [preset for preset in presets.values() if policy.allows(preset.name)]
    readable: dict[str, None] = {}
    with workspace(policy.state, "check") as space:
        for preset in (None, *allowed):
            readable |= dict.fromkeys(box.shown_by(box.around([str(policy.interpreter)], space, preset)))
    yield Check(
        "visible", ok=True, message=f"jobs can read, as far as their presets name it: {', '.join(readable)}"
    )
    yield Check(
        "visible",
        ok=True,
        message="jobs can write: only a folder and a home of their own, removed afterwards",
    )
    for name, path in {item for preset in allowed for item in box.hidden_settings(preset).items()}:
        fix = (
            "Give the file another name, or move it out of the folder that keeps it private, if jobs need it."
        )
        yield Check("visible", None, f"{name}: {path} is hidden from jobs, because it is a private file", fix)
    by_preset = [repositories for preset in allowed if (repositories := box.repositories(preset)) is not None]
    if by_preset:
        yield _cache(sorted({name for repositories in by_preset for name in repositories}), policy.env)


def _cache(names: list[str], env: dict[str, str]) -> Check:
    caches = ", ".join(f"{name} {env[name]}" for name in hub.CACHES if name in env)
    if names:
        return Check(
            "visible", ok=True, message=f"of the hub's cache ({caches}), jobs see only {', '.join(names)}"
        )
    fix = "Name the ids of the models under env in the policy, such as KAKEYA_MAC_VERIFIER_PATH: owner/name."
    message = f"jobs see no model of the hub's cache ({caches}): no setting names one that it holds"
    return Check("visible", None, message, fix)
