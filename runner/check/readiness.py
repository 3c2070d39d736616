"""Whether this host can serve: each thing that it needs, and what to do where it is missing."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

from bridge.bus import branch_names, objects
from bridge.checks import Check
from bridge.errors import GitError, InfrastructureError, KakeyaError, one_line
from bridge.system import engine_probe, environment, git
from bridge.system.process import run
from runner.admit.signature import check_list
from runner.check.inventory import inventory, way_is_free
from runner.check.presets import check_presets, load_problems
from runner.job.command import Command, job_environment
from runner.job.logs import LogSink
from runner.job.workspace import workspace
from runner.policy import Policy, load_policy
from runner.serve.lease import WHO
from runner.session import Session, open_session

_LEAST_FREE_GB = 10
_SHOWN = 10
# The check whose presence says that a runner serves already.
SERVING = "serving"


def examine(path: Path | None) -> Iterator[Check]:
    """Yield what was found about the policy at `path` and about this host under it."""
    found = git.version()
    least = ".".join(map(str, git.MINIMUM))
    yield Check("git", found >= git.MINIMUM, ".".join(map(str, found)), f"Install git {least} or newer.")
    try:
        policy = load_policy(path)
    except KakeyaError as error:
        yield Check("policy", ok=False, message=error.message, fix=error.fix)
        return
    yield Check("policy", ok=True, message=f"{policy.id}, labels: {', '.join(policy.labels) or 'none'}")
    yield _trust(policy)
    yield from inventory(policy)
    try:
        with open_session(policy, lambda _: None) as session:
            yield Check("state", ok=True, message=f"{policy.state}, instance {session.identity.instance}")
            yield _evidence(session)
            yield from _bus(session)
            yield _disk(policy)
            yield _sandbox(session)
            yield _supervisor(session)
            yield from _engine(session)
            yield from check_presets(policy, load_problems(session))
    except KakeyaError as error:
        if error.code == "locked":
            yield _serving(policy)
            yield from check_presets(policy)
            return
        name = "sandbox" if error.code == "no_sandbox" else "state"
        yield Check(name, ok=False, message=error.message, fix=error.fix)


def _serving(policy: Policy) -> Check:
    message = f"a runner is serving with {policy.state}"
    fix = "The bus, the sandbox and loading models are tried when it does not run."
    return Check(SERVING, ok=None, message=message, fix=fix)


def _trust(policy: Policy) -> Check:
    if policy.trust.code_request == "allow":
        fix = "Set trust.code_request to deny unless everyone who can push may use this host as you."
        return Check("trust", ok=None, message="whoever can push to the bus can run code here", fix=fix)
    if policy.trust.code_request == "signed":
        return _signers(policy)
    return Check("trust", ok=True, message="only installed code is run; requests that bring code are refused")


def _signers(policy: Policy) -> Check:
    """Say whose code is run where signatures count."""
    signers = policy.trust.allowed_signers
    if signers is None:
        return Check("trust", ok=True, message="the code of approved requests is run, and no other")
    try:
        check_list(signers)
        run("ssh-keygen", "-Y", "match-principals", env=environment.for_isolated_git(), check=False)
    except KakeyaError as error:
        return Check("trust", ok=False, message=error.message, fix=error.fix or "Install OpenSSH's client.")
    return Check("trust", ok=True, message=f"code signed by a key in {signers}, or approved, is run")


def _evidence(session: Session) -> Check:
    if session.signer is None:
        fix = "Make a key: kakeya-runner keygen. Readers pin its public half."
        return Check("evidence", ok=None, message="answers are not signed: this runner has no key", fix=fix)
    keyid = session.signer.public_key.keyid
    return Check("evidence", ok=True, message=f"answers are signed with sha256:{keyid[:16]}")


def _bus(session: Session) -> Iterator[Check]:
    try:
        tips = session.bus.fetch()
    except InfrastructureError as error:
        fix = "Check bus.url, and what the user who runs the runner may reach (SSH key, or bus.token_file)."
        yield Check("bus", ok=False, message=error.message, fix=fix)
        return
    yield Check("bus", ok=True, message=f"{session.bus.url}: reached, {len(tips)} request branches")
    yield from _left_out(session)
    repo = session.bus.git
    commit = objects.commit(repo, repo.text("mktree", stdin=""), [], "Nothing\n", WHO)
    ref = f"refs/heads/mac-bridge/check-{branch_names.new_nonce()}"
    try:
        repo("push", "--quiet", "--dry-run", "--", session.bus.url, f"{commit}:{ref}", timeout=60)
    except GitError as error:
        fix = "The runner must be able to push request branches: give its key or token that right."
        yield Check("push", ok=False, message=error.words(), fix=fix)
        return
    yield Check("push", ok=True, message="a dry run went through")
    yield way_is_free(session)


def _left_out(session: Session) -> Iterator[Check]:
    """Name the branches that are not looked at, a few of them where there are many."""
    listing = session.bus.listing
    why = dict.fromkeys(listing.some_odd, "no request can have its name") | session.bus.quarantine.why
    for branch in list(why)[:_SHOWN]:
        # The name is a stranger's, and this line is made to be pasted.
        command = shlex.join(["git", "push", session.bus.url, f":refs/heads/{branch}"])
        message = one_line(f"{branch} is left out: {why[branch]}")
        yield Check("branch", None, message, f"Look at it on the bus, then: {one_line(command)}")
    more = len(session.bus.quarantine.why) + listing.odd - min(len(why), _SHOWN)
    if more > 0:
        yield Check("branch", None, f"{more} more are left out", "See the lines above.")


def _disk(policy: Policy) -> Check:
    free = shutil.disk_usage(policy.state).free / 1e9
    fix = "Make room: jobs write reports, and models are large."
    return Check("disk", free >= _LEAST_FREE_GB or None, f"{free:.0f} GB free at {policy.state}", fix)


def _sandbox(session: Session) -> Check:
    box = session.sandbox
    if box.kind == "off":
        fix = "Install bubblewrap and allow it user namespaces; `sandbox: require` makes this an error."
        return Check("sandbox", ok=None, message=f"jobs are NOT confined: {box.why}", fix=fix)
    return Check("sandbox", ok=True, message=f"{box.kind}: a job was tried in it and could not get out")


def _supervisor(session: Session) -> Check:
    """Run a real job of one command under the supervisor, as requests are run."""
    policy, argv = session.policy, ["/bin/echo", "ok"]
    sink = LogSink(1000)
    with workspace(policy.state, "check") as place:
        env = job_environment(place.home, interpreter=policy.interpreter, extra={})
        inside = session.sandbox.around(argv, place)
        command = Command(argv, inside=inside, env=env, cwd=place.tree, timeout_s=30, grace_s=1, sink=sink)
        while command.poll(0.1) is None:
            pass
        ended = command.stop()
    works = ended.exit_code == 0 and sink.kept == b"ok\n"
    return Check("jobs", works, "a job ran and ended" if works else f"a job could not be run: {ended.error}")


def _engine(session: Session) -> Iterator[Check]:
    """Say what the engine computes with, if the policy's presets use it and it is there."""
    allowed = [preset for preset in session.presets.values() if session.policy.allows(preset.name)]
    uses = any("mlx.core" in preset.requires for preset in allowed)
    if uses and session.interpreter.problem(("mlx.core", "engine")) is None:
        env = job_environment(Path("/"), interpreter=session.policy.interpreter, extra={})
        yield engine_probe.engine(session.interpreter.path, env)
