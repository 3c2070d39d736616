"""For ``check`` and ``init``: which allowed presets can run here, and why the others cannot."""

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from bridge.checklist import Check
from bridge.presets import Preset, Presets, did_you_mean, load_presets
from runner.doctor.job_paths import missing_path
from runner.host.fitness import missing_settings, refusal_of
from runner.host.interpreter import Interpreter, Problem
from runner.host.models import Key, Models, Need, need_of, read_answer
from runner.job.command import Ended
from runner.job.sandbox.probe import run_trial
from runner.job.workspace import workspace
from runner.parts import Machine
from runner.policy import Policy

# Time to load 100 GB of weights from a disk that reads 1 to 2 GB/s.
_LOAD_S = 600


def _load_models(presets: Presets, policy: Policy, machine: Machine) -> dict[Key, Mapping[str, Problem]]:
    """Load the models of every allowed preset, as jobs would. Returns what is wrong, by need and setting."""
    problems: dict[Key, Mapping[str, Problem]] = {}
    allowed = _allowed(presets, policy)
    needs = [(preset, need) for preset in allowed if (need := need_of(preset, policy))]
    # Check the largest set first, so that a target that was loaded with its drafter is not loaded again.
    for preset, need in sorted(needs, key=lambda pair: -len(pair[1].models)):
        if need.key not in problems and not machine.interpreter.problem_for(preset):
            known = [earlier for key, earlier in problems.items() if {*need.key} <= {*key}]
            problems[need.key] = known[0] if known else _load(policy, machine, preset, need)
    return problems


def _load(policy: Policy, machine: Machine, preset: Preset, need: Need) -> Mapping[str, Problem]:
    argv = need.command(str(policy.interpreter), files=False)
    ended, output = run_check(policy, machine, argv, preset, extra=need.env, timeout_s=_LOAD_S)
    problems = read_answer(output, need)
    if problems is not None:
        return problems
    last = (output.splitlines() or [ended.error or "it printed nothing"])[-1]
    reason = f"not within {_LOAD_S} s" if ended.timed_out else last
    fix = f"To see why, run on this machine: {' '.join(argv)}"
    return dict.fromkeys(need.models, Problem(f"the models could not be loaded: {reason}", fix))


def _path_problem(preset: Preset, policy: Policy, machine: Machine | None) -> Problem | None:
    """Return a path that a preset's jobs cannot use. With ``machine`` a test job looks, otherwise this process."""
    if machine is None or machine.interpreter.problem():
        return missing_path(preset, policy, None)

    def look(program: str, arguments: Sequence[str]) -> str:
        extra = {name: policy.env[name] for name in preset.pass_env if name in policy.env} | preset.env
        argv = [str(policy.interpreter), *arguments]
        return run_check(policy, machine, argv, preset, program=program, extra=extra)[1]

    return missing_path(preset, policy, look)


def run_check(
    policy: Policy,
    machine: Machine,
    argv: Sequence[str],
    preset: Preset | None = None,
    *,
    program: str | None = None,
    extra: Mapping[str, str] | None = None,
    timeout_s: float = 30.0,
) -> tuple[Ended, str]:
    """Run a command as the job of a preset would run. Returns how it ended, and its output.

    The sandbox is that of ``program``, by default the command's own.
    """
    with workspace(policy.state, "check") as space:
        inside = machine.sandbox.around([program or argv[0]], space, preset)
        extra = machine.sandbox.variables(extra or {}, space, preset) if preset else extra
        interpreter = policy.interpreter
        return run_trial(argv, space, inside, interpreter=interpreter, extra=extra, timeout_s=timeout_s)


def check_presets(policy: Policy, machine: Machine | None = None) -> Iterator[Check]:
    """Yield checks of the interpreter, the models and each allowed preset: whether it could run now.

    Without ``machine``, only the models' files are checked, and whether the commands exist.
    """
    presets = load_presets(policy.preset_folder)
    interpreter, models = Interpreter(policy.interpreter, policy.interpreter_version), Models(policy)
    if machine:
        interpreter = machine.interpreter  # knows already what a job can import
    yield _interpreter(interpreter)
    yield from _names(presets, policy)
    problems = _load_models(presets, policy, machine) if machine else {}
    ready = refused = 0
    loadable: set[str] = set()
    allowed = _allowed(presets, policy)
    for preset in allowed:
        need = need_of(preset, policy)
        if need and need.key not in problems and not interpreter.problem_for(preset):
            problems[need.key] = models.look(need)
        wrong = problems.get(need.key, {}) if need else {}
        if need and need.key in problems:
            loadable |= {f"{name} {model}" for name, model in need.models.items() if name not in wrong}
        mine = [wrong[name] for name in need.models if name in wrong] if need else []
        if not missing_settings(preset, policy) and (problem := _path_problem(preset, policy, machine)):
            mine.append(problem)
        check = _preset(preset, policy, interpreter, mine)
        ready += check.ok is True
        refused += refusal_of(preset, policy) is not None
        yield check
    if loadable:
        how = "their files are present" if machine is None else "loaded in a job without errors"
        yield Check("models", ok=True, message=f"{', '.join(sorted(loadable))}: {how}")
    others = len(allowed) - ready - refused
    summary = f"{ready} can run"
    summary += f", {refused} are refused by the policy" if refused else ""
    summary += f", {others} lack something (see the lines above)" if others else ""
    fix = "Allow more under presets in the policy, or install what the lines above name."
    yield Check("presets", True if ready == len(allowed) else None if ready else False, summary, fix)


def refused_by(policy: Policy) -> list[str]:
    """Return a line with the reason for each installed preset that the policy refuses."""
    reasons = {
        preset.name: refusal_of(preset, policy)
        if policy.allows(preset.name)
        else "the policy's list `presets` does not include it"
        for preset in load_presets(policy.preset_folder).values()
    }
    return [f"{name}: {reason}" for name, reason in reasons.items() if reason]


def allowed_names(presets: Mapping[str, Preset], policy: Policy) -> list[str]:
    """Return the names of the presets that the policy does not refuse."""
    return [preset.name for preset in _allowed(presets, policy) if refusal_of(preset, policy) is None]


def _allowed(presets: Mapping[str, Preset], policy: Policy) -> list[Preset]:
    return [preset for preset in presets.values() if policy.allows(preset.name)]


def _names(presets: Presets, policy: Policy) -> Iterator[Check]:
    """Yield checks for broken presets, and for entries of the policy that match no preset.

    They fail if this host promises the preset. A pattern may be for presets that are still to come.
    """
    for name, error in presets.broken.items():
        is_promised = policy.allows(name)
        yield Check("preset", False if is_promised else None, f"{name}: invalid: {error.message}", error.fix)
    for pattern in policy.presets:
        if not any(fnmatchcase(name, pattern) for name in (*presets, *presets.broken)):
            fix = did_you_mean(pattern, presets) or _where_it_belongs(policy)
            ok = None if any(mark in pattern for mark in "*?[") else False
            yield Check("preset", ok, f"the policy names {pattern}, but there is no such preset", fix)


def _where_it_belongs(policy: Policy) -> str:
    where = str(policy.preset_folder or "a folder that `preset_folder` in the policy names")
    return f"Put its file into {where}: what is in .kakeya/presets on the bus tells requesters, and does not run."


def _interpreter(interpreter: Interpreter) -> Check:
    if problem := interpreter.problem():
        return Check("interpreter", ok=False, message=problem.message, fix=problem.fix)
    if interpreter.version is None:
        fix = "Pin it, so that a system update cannot replace it unnoticed: kakeya-runner pin"
        return Check("interpreter", ok=None, message=f"{interpreter.path}, any version", fix=fix)
    return Check("interpreter", ok=True, message=f"{interpreter.path}, pinned to {interpreter.version}")


def _preset(preset: Preset, policy: Policy, interpreter: Interpreter, models: Sequence[Problem]) -> Check:
    if refused := refusal_of(preset, policy):
        fix = 'To allow it for people that you list, see "Whose code runs" in docs/policy.md.'
        return Check("preset", None, f"{preset.name}: refused: {refused}", fix)
    if missing := missing_settings(preset, policy):
        fix = f"Set {', '.join(missing)} under env in the policy."
        return Check("preset", None, f"{preset.name}: needs {', '.join(missing)}", fix)
    if problem := interpreter.problem_for(preset):
        return Check("preset", None, f"{preset.name}: {problem.message}", problem.fix)
    if models:
        return Check("preset", None, f"{preset.name}: {models[0].message}", models[0].fix)
    return Check("preset", ok=True, message=f"{preset.name}: can run")
