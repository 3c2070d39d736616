"""The overview for ``kakeya-runner status``: read without the runner's lock and without touching the bus."""

import json
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from bridge.bus.presence import RunnerState
from bridge.checklist import Check
from bridge.common import environment
from bridge.errors import KakeyaError, ProcessError
from bridge.manifest import parse_time
from bridge.requests.sighting import TWO_POLLS
from bridge.system.process import run
from runner.policy import Policy
from runner.state import activity, heartbeat, signing_key
from runner.state.activity import Facts, read_facts
from runner.state.turn import read_members

# How late a process's computed start time may be.
_CLOCK_S = 60.0
_PROBE_S = 60.0
_PROBE_BYTES = 1 << 20
_QUEUE_SHOWN = 10


def overview(policy: Policy, *, blas: bool = True) -> dict[str, Any]:
    """Return the overview as data. With ``blas``, also query the engine, which takes seconds."""
    facts = read_facts(policy.state)
    serving = facts is not None and facts.serving and _is_there(facts)
    about = facts.about if serving and facts else {}
    keys = _keys(policy, facts if serving else None)
    free = shutil.disk_usage(policy.state).free if policy.state.is_dir() else None
    return {
        # The policy may have changed since the process started.
        "id": about.get("id", policy.id),
        "bus": about.get("bus", policy.bus.url),
        "others": _others(policy, about),
        "state": str(policy.state),
        "serving": serving,
        "silent_s": _silent_s(policy) if serving else None,
        "runner": asdict(facts) if facts else None,
        "disk": {"free_bytes": free, "keep_free_bytes": policy.limits.keep_free_mb << 20},
        "sandbox": (facts and facts.about.get("sandbox")) or {"kind": None, "policy": policy.sandbox},
        "key": keys["used"],
        "stored_key": keys["stored"],
        "key_fault": keys["fault"],
        "blas": _blas(policy) if blas else None,
    }


def _others(policy: Policy, about: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the other runners of the same service."""
    members = read_members(Path(about["turns"])) if about.get("turns") else []
    return [
        {**other, "serving": heartbeat.serving_process(Path(other["state"])) is not None}
        for other in members
        if other["state"] != str(policy.state)
    ]


def _is_there(facts: Facts) -> bool:
    """Return whether the process that wrote the facts is alive. After a reboot, another process may have its id."""
    try:
        began = psutil.Process(facts.pid).create_time()
    except psutil.Error:
        return False
    with suppress(ValueError):
        return began <= parse_time(facts.written_at).timestamp() + _CLOCK_S
    return True


def _silent_s(policy: Policy) -> float | None:
    """Return for how many seconds the serving process gave no sign of life, if that is longer than two polls take.

    A process that fetches or pushes is silent too, and one that is suspended exists.
    """
    signs = []
    for name in (heartbeat.FILE, activity.NAME):
        with suppress(OSError):
            signs.append((policy.state / name).stat().st_mtime)
    silent_s = time.time() - max(signs, default=0.0)
    longest_s = TWO_POLLS * max(policy.bus.poll[1], heartbeat.INTERVAL_S)
    return round(silent_s, 1) if silent_s > longest_s else None


def checks(overview: dict[str, Any]) -> Iterator[Check]:
    """Yield the overview as checks for people."""
    facts = overview["runner"]
    yield _serving(overview)
    for other in overview["others"]:
        message = f"the same service serves {other['bus']} ({other['policy']}), and runs one job at a time"
        yield Check(
            "also",
            ok=other["serving"] or None,
            message=message if other["serving"] else f"{message}; it is down",
        )
    if overview["serving"] and facts["mode"] != RunnerState.SERVING:
        yield _mode(facts)
    if facts:
        yield from _bus(overview, facts)
        yield _job(facts, serving=overview["serving"])
        yield from _queue(facts)
        yield from _answers(facts)
    yield _disk(overview)
    yield _sandbox(overview)
    yield _signing(overview)
    if overview["blas"]:
        yield _engine(overview["blas"])


def _serving(overview: dict[str, Any]) -> Check:
    facts = overview["runner"]
    who = f"{overview['id']} on {overview['bus']}"
    if overview["serving"]:
        message = f"{who}: serving since {facts['started_at']}, process {facts['pid']}"
        if (silent_s := overview["silent_s"]) is None:
            return Check("runner", ok=True, message=message)
        message += f", but without a sign of life for {silent_s:.0f} s"
        fix = "It is fetching or pushing, or it is suspended or hangs: a suspended process goes on after kill -CONT."
        return Check("runner", ok=None, message=message, fix=fix)
    if facts is None:
        message = f"no runner has used {overview['state']} yet"
    else:
        killed = "ended without a final message (killed, or the machine went down)"
        message = f"{killed if facts['serving'] else 'stopped'}; it last wrote at {facts['written_at']}"
    fix = "Start it on this machine: kakeya-runner serve, or the service made by kakeya-runner install."
    return Check("runner", ok=False, message=f"{who}: {message}", fix=fix)


def _mode(facts: dict[str, Any]) -> Check:
    if facts["mode"] == RunnerState.DRAINING:
        return Check("mode", None, "draining: it finishes its job, takes no other and then ends")
    reason = f": {facts['mode_reason']}" if facts["mode_reason"] else ""
    fix = "To take requests again: kakeya-runner maintenance off"
    return Check("mode", None, f"in maintenance{reason}; it takes no requests", fix)


def _bus(overview: dict[str, Any], facts: dict[str, Any]) -> Iterator[Check]:
    if trouble := facts["trouble"]:
        fix = "The runner keeps trying. For more details, stop it and run kakeya-runner check."
        yield Check("bus", ok=False, message=f"since {trouble['since']}: {trouble['message']}", fix=fix)
    if overview["serving"] or not trouble:
        last = facts["last_poll_at"] or "never"
        yield Check("poll", None if trouble else True, f"last successful poll: {last}")


def _job(facts: dict[str, Any], *, serving: bool) -> Check:
    job = facts["job"]
    if job is None:
        return Check("job", ok=True, message="no job is running")
    step = f", step {job['step']}" if job["step"] else ""
    state = "running since" if serving else "was cut short; it had run since"
    sentence = f"{job['branch']}: {state} {job['since']}{step}"
    return Check("job", ok=True if serving else None, message=f"{sentence}; {job['what']}")


def _queue(facts: dict[str, Any]) -> Iterator[Check]:
    yield Check("queue", ok=True, message=f"waiting requests: {facts['waiting']}")
    for waiting in facts["queue"][:_QUEUE_SHOWN]:
        yield Check("", ok=None, message=f"{waiting['branch']}: {waiting['why']}")
    if facts["waiting"] > _QUEUE_SHOWN:
        yield Check("", ok=None, message=f"and {facts['waiting'] - _QUEUE_SHOWN} more")


def _answers(facts: dict[str, Any]) -> Iterator[Check]:
    if not facts["answers"]:
        yield Check("answers", ok=True, message="none yet")
    for answer in facts["answers"]:
        unpublished = "" if answer["published"] else "; kept here, because it could not be published"
        # Earlier versions did not write this field.
        unsigned = "" if answer.get("signed", True) else ", unsigned,"
        end = f"{answer['state']}{unsigned} after {answer['seconds']:g} s ({answer['reason']})"
        sentence = f"{answer['at']} {answer['branch']}: {end}{unpublished}"
        yield Check("answer", ok=True if answer["published"] else None, message=sentence)


def _disk(overview: dict[str, Any]) -> Check:
    free, least = overview["disk"]["free_bytes"], overview["disk"]["keep_free_bytes"]
    if free is None:
        return Check("disk", None, f"{overview['state']} does not exist yet")
    message = f"{free / 1e9:.1f} GB free at {overview['state']}"
    if free > least:
        return Check("disk", ok=True, message=message)
    fix = f"Free some disk space: jobs are ended below {least >> 20} MiB (limits.keep_free_mb)."
    return Check("disk", ok=False, message=message, fix=fix)


def _sandbox(overview: dict[str, Any]) -> Check:
    box = overview["sandbox"]
    if box["kind"] is None:
        message = f"the policy says {box['policy']}; the result is known once the runner serves"
        return Check("sandbox", None, message)
    if box["kind"] == "off":
        return Check("sandbox", None, f"jobs are NOT confined: {box['why']}")
    return Check("sandbox", ok=True, message=str(box["kind"]))


def _signing(overview: dict[str, Any]) -> Check:
    """Name the key that signs now, and the key after the next start if that differs."""
    used, stored, fault = overview["key"], overview["stored_key"], overview["key_fault"]
    now = f"answers are signed with {used}" if used else "answers are not signed"
    if not overview["serving"] and not fault:
        fix = "Create a key: kakeya-runner keygen"
        return Check("key", True, now) if used else Check("key", None, now, fix)
    if fault:
        then = "its next start fails" if overview["serving"] else "it does not start"
        fix = "Restore the key file, or replace it: kakeya-runner keygen --force"
        return Check(
            "key", False, f"{now}; {then}: {fault}" if overview["serving"] else f"{then}: {fault}", fix
        )
    if used == stored:
        return (
            Check("key", True, now) if used else Check("key", None, now, "Create a key: kakeya-runner keygen")
        )
    later = f"{stored} is used" if stored else "nothing is signed, because the key file is gone"
    fix = f"After a restart, {later}. Readers need every key pinned: kakeya-runner keygen --show prints them."
    return Check("key", None, now, fix)


def _engine(blas: dict[str, Any]) -> Check:
    if blas.get("problem"):
        return Check("blas", ok=None, message=str(blas["problem"]))
    speed = f", {blas['gflops']} GFLOP/s in float32" if blas.get("gflops") is not None else ""
    return Check("blas", ok=True, message=f"{blas.get('name')}{speed}")


def _keys(policy: Policy, facts: Facts | None) -> dict[str, Any]:
    """Return the key that the serving process says it signs with, and the key in the state folder."""
    stored = fault = None
    try:
        stored = (
            signing_key.public_key(policy.state).short
            if (policy.state / signing_key.PRIVATE).exists()
            else None
        )
    except (KakeyaError, OSError) as error:
        fault = str(error)
    # Earlier versions did not write this field.
    knows = facts is not None and "key" in facts.about
    used = facts.about["key"] if facts and knows else stored
    return {"used": used, "stored": stored, "fault": fault}


def _blas(policy: Policy) -> dict[str, Any]:
    """Query the BLAS of the engine that jobs use, in a separate process that may take at most a minute."""
    argv = (str(policy.interpreter), "-P", "-m", "engine", "probe", "--json")
    try:
        env = environment.for_user_git()
        done = run(*argv, env=env, cwd="/", timeout=_PROBE_S, check=False, most=_PROBE_BYTES)
        blas = json.loads(done.stdout)["blas"]
        return {"name": blas["name"], "library": blas.get("library"), "gflops": blas.get("gflops")}
    except (ProcessError, ValueError, KeyError, TypeError):
        probe = f"{policy.interpreter} -m engine probe"
        return {"problem": f"unknown: `{probe}` gave no answer. Is the engine installed?"}
