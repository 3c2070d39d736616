"""Checks whether this host can serve: what is needed, and how to fix what is missing."""

import shlex
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from bridge.checklist import Check
from bridge.common import environment
from bridge.errors import InfrastructureError, KakeyaError, one_line
from bridge.presets import Presets
from bridge.system import engine_probe, git
from bridge.system.process import run
from runner.admit.signature import check_list, has_usable_signer
from runner.bus.bus import Bus
from runner.context import open_runner
from runner.doctor.bus import advice, push_and_delete
from runner.doctor.cluster import check_cluster
from runner.doctor.presets import check_presets, run_check
from runner.doctor.visible import visible_files
from runner.host.facts import describe_host, describe_versions
from runner.host.interpreter import Interpreter
from runner.job.command import job_environment
from runner.parts import Keys, Machine
from runner.policy import Policy, default_path, load_policy
from runner.upkeep.name_conflicts import find_conflicts

_POINTER = b"version https://git-lfs"
_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.npz")
_LEAST_FREE_GB = 10
_SHOWN = 10
# Name of the check that appears only if a runner serves already.
SERVING = "serving"


def examine(path: Path | None) -> Iterator[Check]:
    """Yield the checks of the policy at ``path``, or at the default path, and of this host under that policy.

    Raises:
        UsageError: there is no default path, because this user has no home folder.
    """
    path = path or default_path()
    version = git.version()
    least = ".".join(map(str, git.MINIMUM))
    yield Check("git", version >= git.MINIMUM, ".".join(map(str, version)), f"Install git {least} or newer.")
    try:
        policy = load_policy(path)
    except KakeyaError as error:
        yield Check.failed("policy", error)
        return
    yield Check("policy", ok=True, message=f"{policy.id}, labels: {', '.join(policy.labels) or 'none'}")
    yield trust(policy)
    yield from _inventory(policy)
    try:
        with open_runner(policy, lambda _: None) as context:
            yield Check("state", ok=True, message=f"{policy.state}, instance {context.identity.instance}")
            yield _evidence(context.keys)
            yield from _bus(context.bus, policy.bus.forward)
            yield _disk(policy)
            yield _sandbox(context.machine)
            yield from visible_files(context.machine.sandbox, context.policy, context.presets)
            yield _supervisor(policy, context.machine)
            yield from _engine(policy, context.presets, context.machine.interpreter)
            yield from check_cluster(policy, sandboxed=context.machine.sandbox.kind != "off")
            yield from check_presets(policy, context.machine)
    except KakeyaError as error:
        if error.code == "locked":
            fix = "Stop it to check the bus and the sandbox, and to load the models."
            yield Check(SERVING, None, f"a runner is serving with {policy.state}", fix)
            yield from check_presets(policy)
        else:
            yield Check.failed("sandbox" if error.code == "no_sandbox" else "state", error)


def trust(policy: Policy) -> Check:
    """Check whose code may run, and whether the policy's list of signers names anybody."""
    if policy.trust.code_request == "allow":
        fix = "Set trust.code_request to deny, unless everybody who can push may use this host with your rights."
        return Check("trust", ok=None, message="everybody who can push to the bus can run code here", fix=fix)
    if policy.trust.code_request == "signed":
        return _signers(policy)
    return Check("trust", ok=True, message="only installed code runs; requests that bring code are refused")


def _signers(policy: Policy) -> Check:
    signers = policy.trust.allowed_signers
    if signers is None:
        return Check("trust", ok=True, message="only the code of approved requests runs")
    try:
        check_list(signers)
        run("ssh-keygen", "-Y", "match-principals", env=environment.for_isolated_git(), check=False)
        names_somebody = has_usable_signer(signers)
    except KakeyaError as error:
        return Check("trust", ok=False, message=error.message, fix=error.fix or "Install OpenSSH's client.")
    if not names_somebody:
        message = f"no line of {signers} can verify a signature now: only the code of approved requests runs"
        fix = 'Add a line such as: alice@example.com namespaces="git" ssh-ed25519 AAAA... (no patterns as names)'
        return Check("trust", ok=None, message=message, fix=fix)
    return Check("trust", ok=True, message=f"code runs if it is approved or signed with a key in {signers}")


def _evidence(keys: Keys) -> Check:
    if keys.signer is None:
        fix = "Create a key: kakeya-runner keygen. Readers then pin its public key."
        return Check("evidence", ok=None, message="answers are not signed: this runner has no key", fix=fix)
    keyid = keys.signer.public_key.keyid
    return Check("evidence", ok=True, message=f"answers are signed with sha256:{keyid[:16]}")


def _bus(bus: Bus, forward: Sequence[str]) -> Iterator[Check]:
    try:
        tips = bus.fetch()
    except InfrastructureError as error:
        fix = "Check bus.url in the policy, and the SSH key or bus.token_file of the runner's user on this machine."
        yield Check("bus", ok=False, message=error.message, fix=advice(bus.git, error) or fix)
        return
    sessions = len(bus.sessions)
    listed = len(bus.listing.tips) - sessions
    yield Check("bus", ok=True, message=f"{bus.url}: reached, {listed} request branches")
    if forward:
        message = f"requests are forwarded from {', '.join(forward)}: {sessions} branches now"
        yield Check("forward", ok=True, message=message)
    if late := listed - len(tips) - bus.commits.hostile_count:
        message = f"{late} of the {listed} request branches are not fetched yet: they come slowly, or cannot be sent"
        fix = "A serving runner goes on fetching them. If that does not end: git fsck in the repository of the bus."
        yield Check("branches", None, message, fix)
    yield from _left_out(bus)
    way = _way_is_free(bus)
    if way.ok is not False:
        yield from push_and_delete(bus)
    yield way


def _left_out(bus: Bus) -> Iterator[Check]:
    """Yield a check for each branch that is left out for good; of many, only for the first few."""
    listing, commits = bus.listing, bus.commits
    refused = {
        branch: reason for branch, reason in commits.reasons.items() if commits.has_refused_objects(branch)
    }
    reason = dict.fromkeys(listing.misnamed, "no request can have this name") | refused
    for branch in list(reason)[:_SHOWN]:
        # Anybody can choose the branch name, and this command is made to be pasted, so it is quoted.
        command = shlex.join(["git", "push", bus.url, f":refs/heads/{branch}"])
        message = one_line(f"{branch} is left out: {reason[branch]}")
        yield Check("branch", None, message, f"If nobody needs it, delete it: {one_line(command)}")
    more = len(refused) + listing.misnamed_count - min(len(reason), _SHOWN)
    if more > 0:
        yield Check("branch", None, f"{more} more branches are left out", "See the lines above.")


def _disk(policy: Policy) -> Check:
    free = shutil.disk_usage(policy.state).free / 1e9
    fix = "Free some disk space: jobs write reports, and models are large."
    return Check("disk", free >= _LEAST_FREE_GB or None, f"{free:.0f} GB free at {policy.state}", fix)


def _sandbox(machine: Machine) -> Check:
    box = machine.sandbox
    if box.kind == "off":
        fix = "Install bubblewrap, and allow it user namespaces. `sandbox: require` makes this an error."
        return Check("sandbox", None, f"jobs are NOT confined: {box.why}", fix)
    return Check("sandbox", ok=True, message=f"{box.kind}: a test job ran in it and could not get out")


def _supervisor(policy: Policy, machine: Machine) -> Check:
    """Run a test job of one command under the supervisor, like the jobs of requests."""
    ended, output = run_check(policy, machine, ["/bin/echo", "ok"])
    if ended.exit_code == 0 and output == "ok":
        return Check("jobs", ok=True, message="a test job ran and ended")
    return Check("jobs", ok=False, message=f"a test job could not run: {ended.error}")


def _engine(policy: Policy, presets: Presets, interpreter: Interpreter) -> Iterator[Check]:
    """Report whether the engine computes correctly, and its BLAS, if presets use the engine and it is installed."""
    allowed = [preset for preset in presets.values() if policy.allows(preset.name)]
    uses = any("mlx.core" in preset.requires for preset in allowed)
    if uses and interpreter.problem(("mlx.core", "engine")) is None:
        env = job_environment(Path("/"), interpreter=policy.interpreter, extra={})
        yield engine_probe.engine(interpreter.path, env, required=True)


def _inventory(policy: Policy) -> Iterator[Check]:
    """Yield the host, the versions, and each setting of the policy that is a path."""
    host = describe_host()
    memory = host["memory_bytes"] / (1 << 30)
    shape = f"{host['os']} {host['os_version']}, {host['arch']}, {host['cpus']} cores, {memory:.0f} GiB"
    yield Check("host", ok=True, message=shape)
    versions = describe_versions(Interpreter(policy.interpreter))
    known = [f"{name} {value}" for name, value in versions.items() if value]
    yield Check("versions", ok=True, message=", ".join(known))
    if outside := environment.outside():
        message = "git and Git LFS reach servers by " + ", ".join(
            f"{name}={it}" for name, it in outside.items()
        )
        yield Check("outside", ok=True, message=message)
    for name, value in policy.env.items():
        if value.startswith(("/", "~")):
            yield _location(name, value)


def _location(name: str, value: str) -> Check:
    """Check that a path setting exists, and that its files are not Git LFS pointers."""
    path = Path(value)
    if value.startswith("~"):
        fix = f"Write {environment.expand(path)} in the policy, because jobs have another home folder."
        return Check("setting", None, f"{name}: {value} is not an absolute path", fix)
    if not path.exists():
        fix = f"Create it on this machine, or change env.{name} in the policy."
        return Check("setting", None, f"{name}: {path} does not exist", fix)
    files = [path] if path.is_file() else [file for glob in _WEIGHTS for file in sorted(path.glob(glob))]
    if pointer := next(filter(_is_pointer, files), None):
        fix = f"Fetch the file: git -C {pointer.parent} lfs pull"
        message = f"{name}: {pointer.name} is a Git LFS pointer, not the file itself"
        return Check("setting", None, message, fix)
    return Check("setting", ok=True, message=f"{name}: {path}")


def _is_pointer(file: Path) -> bool:
    with file.open("rb") as opened:
        return opened.read(len(_POINTER)) == _POINTER


def _way_is_free(bus: Bus) -> Check:
    """Check whether a branch name on the bus blocks requests."""
    try:
        conflicts = find_conflicts(bus)
    except InfrastructureError as error:
        return Check("squatting", None, error.message, "See the line `bus` above.")
    if conflicts.message:
        return Check("squatting", False if conflicts.blocking else None, conflicts.message, conflicts.fix)
    return Check("squatting", ok=True, message="no branch name blocks new requests")
