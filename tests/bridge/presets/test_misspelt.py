"""Each key of a preset and of a policy is given a value of another kind once: generated. Some words are misspelt."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
import yaml

from bridge.errors import PolicyError
from bridge.presets import load_presets
from runner.policy import load_policy

PRESET: dict[str, Any] = {
    "name": "mine", "description": "One of mine.", "cannot_show": "anything", "code": "installed", "timeout_s": 30,
    "use": ["installed"],
    "steps": [{"argv": ["/bin/echo", "{number}", "{word}", "{switch}", "{cache}"]}],
    "params": {
        "number": {"type": "int", "min": 1, "max": 5, "default": 3, "help": "a number", "unused": False},
        "word": {"type": "enum", "values": ["a", "b"], "default": "a"},
        "switch": {"type": "flag", "option": "--on", "default": False},
        "cache": {"type": "cache", "words": ["all"], "default": "all"},
    },
    "inputs": {"under": "results/research", "ending": ".json", "files": 1, "file_mb": 1, "total_mb": 1},
    "collect": ["results/research/x.json"], "gate": "reports", "leaves": ["a.whl"], "labels": ["fast"],
    "requires": ["json"], "env": {"SOME_NAME": "x"}, "pass_env": ["OTHER_NAME"], "network": False,
    "limits": {
        "file_mb": 1, "memory_mb": 16, "processes": 4, "disk_mb": 1, "files": 16, "open_files": 16, "report_mb": 1,
        "reports": 1, "all_reports_mb": 1,
    },
}  # fmt: skip
COMPARED: dict[str, Any] = {
    "name": "mine", "description": "One of mine.", "code": "request", "timeout_s": 30,
    "steps": [{"argv": ["/bin/echo"]}],
    "compare": {"measure": "printed", "pointer": "/ns", "unit": "ns", "better": "lower", "rounds": 6},
}  # fmt: skip
OWN: dict[str, Any] = {
    "name": "mine", "description": "One of mine.", "code": "installed", "timeout_s": 30,
    "steps": [{"argv": ["/bin/echo"]}], "collect": ["results/research/x.json"], "gate": "mine",
    "reports": {
        "mine": {
            "schema": {
                "type": "object", "required": ["kind"], "additionalProperties": False,
                "properties": {"kind": {"const": "mine"}, "samples": {"items": {"minimum": 0}, "maxItems": 9}},
            },
            "claims": [
                {
                    "name": "gain", "pointer": "/gain", "unit": "x", "better": "higher", "derive": "ratio",
                    "samples": "/samples", "against": "/others", "min_samples": 3,
                },
            ],
        },
    },
}  # fmt: skip
POLICY: dict[str, Any] = {
    "schema_version": 1, "id": "one", "labels": ["fast"], "state": "state", "presets": ["*"],
    "bus": {
        "url": "bus", "patterns": ["a/*"], "forward": ["b/*"], "token_file": "t", "poll_s": 1, "idle_poll_s": 1,
        "pushes_per_minute": 1, "lease_s": 9, "max_lease_s": 9, "presence_s": 9, "notes": False,
    },
    "preset_folder": "/p", "interpreter": "/bin/python", "interpreter_version": "3.11", "env": {"SOME_NAME": "x"},
    "trust": {
        "code_request": "deny", "allowed_signers": "/a", "unapproved": "hold", "repositories": ["r"], "runners": ["/k"],
    },
    "actions": {
        "repository": "a/b", "workflows": [".github/workflows/a.yml@refs/heads/main"], "events": ["push"],
        "branches": ["main"], "workflow_sha256": ["0" * 64], "models": ["/m"],
    },
    "retention": {"days": 1, "keep": 1, "archive": "/a"},
    "lfs": {"file_mb": 1, "total_mb": 1, "files": 1, "timeout_s": 1, "hosts": ["h"]},
    "sandbox": "auto", "on_stop": "finish", "priority": {"noop": 1},
    "cluster": {"ranks": 2, "backend": "ring", "presets": ["p"]},
    "limits": {
        "timeout_s": 1, "grace_s": 1, "log_mb": 1, "memory_mb": 16, "processes": 4, "disk_mb": 1, "files": 16,
        "keep_free_mb": 0, "keep_memory_mb": 0, "tree_mb": 1, "tree_files": 1, "attempts": 1, "max_age_s": 60,
        "clock_skew_s": 0, "per_requester": {"waiting": 1, "per_hour": 1},
    },
}  # fmt: skip
# Names below these are the author's own.
FREE = {"params", "env", "priority", "reports", "properties"}
LIBRARY = re.compile(
    r"\bInput|should|[Ee]xtra|permitted|\btag\b|dictionary|instance|Traceback|constrained|valid (?:int|str|bool)"
)
Path = tuple[str | int, ...]


def keys(value: object, path: Path = ()) -> list[Path]:
    """Return the path of each key, at every depth."""
    found: list[Path] = []
    if isinstance(value, dict):
        for key, inner in value.items():
            found += [] if path and path[-1] in FREE else [(*path, key)]
            found += keys(inner, (*path, key))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            found += keys(inner, (*path, i))
    return found


def edited(document: dict[str, Any], path: Path, value: object) -> dict[str, Any]:
    """Return the document with another value of a key."""
    changed = copy.deepcopy(document)
    *outer, key = path
    inside: Any = changed
    for part in outer:
        inside = inside[part]
    inside[key] = value
    return changed


def name_of(path: Path) -> str:
    return ".".join(map(str, path))


def preset_error(folder, document) -> str:
    (folder / "mine.yaml").write_text(yaml.safe_dump(document))
    error = load_presets(folder).broken["mine"]
    return f"{error.message} {error.fix}"


def policy_error(folder, document) -> str:
    path = folder / "policy.yaml"
    path.write_text(yaml.safe_dump(document))
    path.chmod(0o600)
    with pytest.raises(PolicyError) as caught:
        load_policy(path)
    return f"{caught.value.message} {caught.value.fix}"


KINDS = [
    ("preset", PRESET, preset_error),
    ("preset", COMPARED, preset_error),
    ("policy", POLICY, policy_error),
]
VALUES = [(kind, document, of, path) for kind, document, of in KINDS for path in keys(document)]


# A dozen in `make test`, all in `make check`.
SOME_OR_ALL = pytest.mark.parametrize(
    "chosen",
    [slice(None, None, 10), pytest.param(slice(None), marks=pytest.mark.long)],
    ids=["some", "all"],
)


def test_the_documents_have_every_key():
    """A key that is added to a model has to be added here."""
    from bridge.presets import compare, model, params  # noqa: PLC0415
    from runner.policy import model as policy  # noqa: PLC0415

    def names(*models) -> set[str]:
        return {name for each in models for name in each.model_fields}

    written = {str(path[-1]) for document in (PRESET, COMPARED) for path in keys(document)}
    assert (
        names(model.Preset, model.Limits, model.Inputs, model.Step, params.IntParam, params.ChoiceParam)
        <= written
    )
    assert names(params.FlagParam, params.CacheParam, compare.Compare) <= written
    sections = (
        policy.Policy,
        policy.Bus,
        policy.Trust,
        policy.Actions,
        policy.Retention,
        policy.Lfs,
        policy.Limits,
    )
    assert names(*sections, policy.Quota) <= {str(path[-1]) for path in keys(POLICY)}


@pytest.mark.parametrize("value", [{"x": [1]}, [[1]]], ids=["a mapping", "a list"])
@SOME_OR_ALL
def test_a_value_of_another_kind_is_named(tmp_path, chosen, value):
    for _, document, error_of, path in VALUES[chosen]:
        said = error_of(tmp_path, edited(document, path, value))

        assert name_of(path) in said
        assert LIBRARY.search(said) is None


REST = ["{word}", "{switch}", "{cache}"]
WORDS = {
    "a type": (("params", "number", "type"), "itn", "(did you mean int?)"),
    "whose code": (("code",), "instaled", "(did you mean installed?)"),
    "a kind of report": (("gate",), ["kakeya.spec-bnch"], "(did you mean kakeya.spec-bench?)"),
    "a gate": (("gate",), "report", "(did you mean reports?)"),
    "a fragment": (("use",), ["instaled"], "(did you mean installed?)"),
    "a piece of a command": (("steps", 0, "use"), ["engin"], "(did you mean engine?)"),
    "a placeholder": (("steps", 0, "argv"), ["/bin/echo", "{numer}", *REST], "(did you mean number?)"),
    "a folder": (("inputs", "under"), "results/reserch", "inputs.under: must be results/research"),
}  # fmt: skip


@pytest.mark.parametrize(("path", "value", "meant"), WORDS.values(), ids=WORDS)
def test_a_misspelt_word_is_named_with_the_one_that_was_meant(tmp_path, path, value, meant):
    said = preset_error(tmp_path, edited(PRESET, path, value))

    assert meant in said
    assert LIBRARY.search(said) is None
