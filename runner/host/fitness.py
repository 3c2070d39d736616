"""Which presets this runner can run: by its policy, and by the interpreter, packages and models that are installed."""

from collections.abc import Mapping
from functools import cached_property

from bridge.presets import Preset, load_presets
from runner.host.interpreter import Interpreter, Problem
from runner.host.models import Models
from runner.policy import Policy


def refusal_of(preset: Preset, policy: Policy) -> str | None:
    """Return why the policy refuses a preset that it names, or None."""
    if preset.code == "request" and policy.trust.code_request == "deny":
        return "it runs the requester's own code, and trust.code_request is deny"
    if policy.refused_by(preset) == "cluster.presets":
        return "it uses the cluster, and cluster.presets does not name it"
    return None


def missing_settings(preset: Preset, policy: Policy) -> list[str]:
    """Return the settings that a preset needs and the policy does not give."""
    return [name for name in preset.env_names if not policy.settings.get(name)]


class Fitness:
    """The presets that this host can run, and those that failed their last check."""

    def __init__(
        self, policy: Policy, presets: Mapping[str, Preset], interpreter: Interpreter, models: Models
    ) -> None:
        self._allowed = {
            name: preset
            for name, preset in presets.items()
            if policy.allows(name) and not refusal_of(preset, policy) and not missing_settings(preset, policy)
        }
        self._interpreter = interpreter
        self._models = models
        self._failed: set[str] = set()
        # Presets that passed the full check in this process, and presets whose parts were all present at some time.
        self._passed: set[str] = set()
        self._present: set[str] = set()

    @property
    def presets(self) -> dict[str, str]:
        """The digests, by name, of the presets that this runner could run at the last check."""
        return {name: preset.digest for name, preset in self._allowed.items() if name not in self._failed}

    @cached_property
    def _installed(self) -> frozenset[str]:
        """The digests of the presets that come with the installation."""
        return frozenset(preset.digest for preset in load_presets().values())

    @property
    def own_definitions(self) -> list[Preset]:
        """The presets that could run at the last check and whose definitions differ from the installed ones."""
        offered = self.presets
        return [
            preset
            for name, preset in self._allowed.items()
            if offered.get(name) not in (None, *self._installed)
        ]

    def problem_for(self, preset: Preset) -> tuple[str, Problem] | None:
        """Check the host before a job. Returns a refusal's code and the problem, or None if the preset can run."""
        for code, judge in (("interpreter", self._interpreter), ("models", self._models)):
            if problem := judge.problem_for(preset):
                self._failed.add(preset.name)
                return code, problem
        self._failed.discard(preset.name)
        self._passed.add(preset.name)
        return None

    def could_run_before(self, preset: Preset) -> bool:
        """Return whether a preset that fails its check could run before, or lost a part: the fault may be temporary."""
        if preset.name in self._passed or preset.name not in self._present:
            return preset.name in self._passed
        return bool(self._interpreter.unavailable_presets([preset]) or self._models.problem_for(preset))

    def check(self) -> None:
        """Check all presets. This looks for modules without importing them, as the check before a job does."""
        absent = self._interpreter.unavailable_presets(self._allowed.values())
        for name, preset in self._allowed.items():
            if name in self._failed and name not in absent:
                self.problem_for(preset)
            elif name in absent or self._models.problem_for(preset):
                self._failed.add(name)
            else:
                self._present.add(name)
