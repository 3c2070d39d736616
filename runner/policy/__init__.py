"""What this host allows: one YAML file, outside every repository, that no request can reach."""

from runner.policy.file import default_path, load_policy, write_template
from runner.policy.model import INTERPRETER, Actions, Bus, Lfs, Limits, Policy, Retention, default_state

__all__ = [
    "INTERPRETER",
    "Actions",
    "Bus",
    "Lfs",
    "Limits",
    "Policy",
    "Retention",
    "default_path",
    "default_state",
    "load_policy",
    "write_template",
]
