"""Presets are data: what they mean is fixed by their file, and a malformed file says which it is and what is wrong."""

from __future__ import annotations

import copy
import os
import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from bridge.errors import PresetError
from bridge.gate import KINDS
from bridge.presets import Preset, did_you_mean, find_preset, load_presets
from bridge.presets.params import FlagParam
from bridge.reports.kinds import COMPARE
from tests.properties import examples

PYTHON = "/opt/python"
ENV = {"KAKEYA_MAC_PYTHON": PYTHON, "KAKEYA_MAC_VERIFIER_PATH": "/m", "KAKEYA_MAC_DRAFTER_ID": "tiny"}


def commands_of(preset: Preset, params: dict[str, object], env: dict[str, str]) -> list[list[str]]:
    return preset.build_commands(preset.check_params(params), env)


# Name, parameters with their defaults, bounds and seconds that requesters of the older bridge rely on.
K3 = {
    "mlx-env-probe": ({}, 600),
    "mlx-backend-tests": ({}, 2700),
    "integration-tests": ({}, 3600),
    "k3-step1-incremental": ({"n_samples": 5, "max_new_tokens": 64, "block_size": 4}, 7200),
    "k3-step2-fused": ({"n_samples": 5, "max_new_tokens": 64, "block_size": 4}, 7200),
    "k3-native-baseline": ({"n_samples": 5, "max_new_tokens": 64, "block_size": 4}, 7200),
    "k3-step2-fused-allmlx": ({"n_samples": 5, "max_new_tokens": 64, "block_size": 4}, 7200),
    "k3-drafter-parity": ({"n_samples": 3, "block_size": 8}, 3600),
    "k3-drafter-parity-fp32": ({"n_samples": 3, "block_size": 8}, 3600),
    "k3-kv-quant-eval": ({"n_samples": 5, "max_new_tokens": 32}, 5400),
    "k3-evidence-gate": ({}, 600),
    "pytest-path": ({"path": None}, 2700),
    "k3-fused-singlefused-probe": (
        {"n_samples": 2, "max_new_tokens": 24, "block_size": 4, "context_len": 2048},
        3600,
    ),
    "k3-fused-allmlx-code-trim": ({"n_samples": 8, "max_new_tokens": 64, "block_size": 4}, 7200),
    "k3-fused-allmlx-code": ({"n_samples": 8, "max_new_tokens": 64, "block_size": 4}, 7200),
    "k3-fused-allmlx-natural": (
        {"n_samples": 5, "max_new_tokens": 48, "block_size": 4, "context_len": 1024},
        7200,
    ),
}
BOUNDS = {"n_samples": (1, 50), "max_new_tokens": (1, 2048), "block_size": (1, 16)}

INSTALLED = load_presets()
BUNDLED_POSITIONS = 4096


def test_what_a_preset_cannot_show_is_no_part_of_what_is_compared_and_announced():
    whole = INSTALLED["noop"].model_dump()
    told = Preset.model_validate({**whole, "cannot_show": "anything that was measured"})
    assert (told.digest, told.model_dump()) == (INSTALLED["noop"].digest, whole)
    assert INSTALLED["kv-codec-rd"].cannot_show == "what a model makes of that error"


@pytest.mark.parametrize("name", [name for name in INSTALLED if "context_len" in INSTALLED[name].params])
def test_a_default_context_leaves_room_for_the_new_tokens_in_the_bundled_models(name):
    values = {param: about.default for param, about in INSTALLED[name].params.items()}
    longest_block = 16
    assert values["context_len"] + max(values.get("max_new_tokens") or 0, longest_block) <= BUNDLED_POSITIONS


@pytest.mark.parametrize("name", INSTALLED)
def test_a_shipped_preset_says_what_it_does(name):
    assert INSTALLED[name].name == name
    assert INSTALLED[name].description.endswith(".")


def test_only_presets_that_say_so_run_the_requesters_code():
    asked = {name for name, preset in INSTALLED.items() if preset.code == "request"}
    assert asked == {"integration-tests", "mlx-backend-tests", "pytest-path"}


@pytest.mark.parametrize("name", K3)
def test_the_sixteen_keep_their_parameters_bounds_and_time_limits(name):
    defaults, seconds = K3[name]
    found = INSTALLED[name]
    assert {key: param.default for key, param in found.params.items()} == defaults
    bounds = {key: (found.params[key].min, found.params[key].max) for key in BOUNDS if key in found.params}
    assert bounds == {key: BOUNDS[key] for key in bounds}
    assert found.timeout_s == seconds


def test_whatever_leaves_a_report_is_gated_and_collects_each_report_that_it_writes():
    for found in INSTALLED.values():
        written = [t for step in found.steps for t in step.argv if t.startswith("results/research/")]
        assert found.collect == written
        assert len(found.kinds) == len(written)


def test_every_preset_can_be_found_in_alphabetical_order():
    assert list(INSTALLED) == sorted(INSTALLED)


@examples(150)
@given(
    st.sampled_from(sorted(INSTALLED)),
    st.dictionaries(
        st.sampled_from(["n_vectors", "dim", "seed", "path", "n_samples", "block_size", "context_len"]),
        st.text(max_size=12)
        | st.from_regex(r"(tests/|-{1,2})?[a-z0-9:-]{0,8}", fullmatch=True)
        | st.integers(),
    ),
)
def test_no_value_that_is_given_becomes_an_option(name, params):
    preset = INSTALLED[name]
    try:
        commands = commands_of(preset, params, ENV)
    except PresetError:
        return
    literal = {token for step in preset.steps for token in step.argv}
    given_ = [part for argv in commands for part in argv if part not in literal]
    assert not [part for part in given_ if part.startswith("-")]
    flags = [param.option for param in preset.params.values() if isinstance(param, FlagParam)]
    unset = sum(option not in commands[0] for option in flags)
    assert len(commands[0]) == len(preset.steps[0].argv) - unset


def test_unknown_and_missing_parameters_are_told_apart():
    with pytest.raises(PresetError, match="has no parameter 'n_vector'") as caught:
        commands_of(INSTALLED["kv-codec-rd"], {"n_vector": 64}, ENV)
    assert (caught.value.code, caught.value.fix) == ("unknown_param", "Did you mean n_vectors?")
    with pytest.raises(PresetError, match="has no parameter 'zzz'") as caught:
        commands_of(INSTALLED["noop"], {"zzz": 1}, ENV)
    assert caught.value.fix == "It takes: none."
    with pytest.raises(PresetError, match="needs parameter path") as caught:
        commands_of(INSTALLED["pytest-path"], {}, ENV)
    assert caught.value.code == "missing_param"
    assert "-p path=VALUE" in caught.value.fix


def test_a_bad_value_is_told_with_the_name_of_its_parameter():
    with pytest.raises(
        PresetError, match="kv-codec-rd: n_vectors must be a whole number from 64 to 65536"
    ) as caught:
        commands_of(INSTALLED["kv-codec-rd"], {"n_vectors": 5}, ENV)
    assert caught.value.code == "out_of_range"


def test_texts_are_read_as_values():
    assert INSTALLED["kv-codec-rd"].read_params({"n_vectors": "64", "dim": "128"}) == {
        "n_vectors": 64,
        "dim": "128",
    }
    with pytest.raises(PresetError, match="n_vectors must be a whole number"):
        INSTALLED["kv-codec-rd"].read_params({"n_vectors": "many"})
    with pytest.raises(PresetError, match="has no parameter"):
        INSTALLED["noop"].read_params({"n": "1"})


@pytest.mark.parametrize("env", [{}, {"KAKEYA_MAC_PYTHON": ""}], ids=["unset", "empty"])
def test_a_setting_that_the_host_lacks_is_named(env):
    with pytest.raises(PresetError, match="needs the setting KAKEYA_MAC_PYTHON") as caught:
        commands_of(INSTALLED["mlx-env-probe"], {}, env)
    assert caught.value.code == "missing_env"


def test_the_settings_that_a_preset_needs_are_listed_once():
    twice = [["${ENV:A}", "${ENV:B}"], ["${ENV:A}"]]
    assert preset(steps=[{"argv": argv} for argv in twice]).env_names == ["A", "B"]


def test_a_flag_that_is_off_leaves_no_trace_in_the_command():
    made = preset(
        steps=[{"argv": ["/bin/x", "{loud}", "end"]}], params={"loud": {"type": "flag", "option": "--loud"}}
    )
    assert commands_of(made, {}, {}) == [["/bin/x", "end"]]
    assert commands_of(made, {"loud": True}, {}) == [["/bin/x", "--loud", "end"]]


def test_the_nearest_preset_is_proposed():
    with pytest.raises(PresetError, match="there is no preset 'nop'") as caught:
        find_preset(INSTALLED, "nop")
    assert (caught.value.code, caught.value.fix) == ("unknown_preset", "Did you mean noop?")
    with pytest.raises(PresetError) as caught:
        find_preset(INSTALLED, "zzzzzzzz")
    assert caught.value.fix == "`kakeya presets` lists them all."


def test_nothing_is_proposed_where_nothing_is_near():
    assert did_you_mean("zzzz", {"noop": 1}) is None


BASE = {
    "name": "job",
    "description": "A job.",
    "code": "installed",
    "timeout_s": 60,
    "steps": [{"argv": ["/bin/echo", "hello"]}],
}


def preset(**changes: object) -> Preset:
    return Preset.model_validate({**BASE, **changes})


def body(**changes: object) -> str:
    return yaml.safe_dump({key: value for key, value in {**BASE, **changes}.items() if value is not None})


def argv(*tokens: object, **changes: object) -> str:
    return body(steps=[{"argv": list(tokens)}], **changes)


INT = {"type": "int", "min": 1, "max": 2}
PATH = {"type": "path", "under": ["tests"]}

MALFORMED = {
    "nothing": ("", "must hold one mapping"),
    "a list at the top": ("- name: job\n", "must hold one mapping"),
    "a word at the top": ("job\n", "must hold one mapping"),
    "numbers as keys": ("1: 2\n", "must hold one mapping"),
    "not YAML": ("name: [job\n", "not valid YAML"),
    "a tab": ("name:\n\t- job\n", "not valid YAML"),
    "two documents": ("name: job\n---\nname: job\n", "not valid YAML"),
    "an object of Python": ("name: !!python/object/apply:os.system [id]\n", "not valid YAML"),
    "an unknown tag": ("name: !secret x\n", "not valid YAML"),
    "an alias to nothing": ("name: *x\n", "not valid YAML"),
    "bytes that are no text": (b"name: \xff\xfe\xfa\n", "not valid YAML"),
    "a list as a key": ("? [a]\n: b\n", "not valid YAML"),
    "deep nesting": ("a: " + "[" * 20_000, "not valid YAML"),
    "a key twice": (body() + "name: job\n", "'name' stands twice"),
    "a key twice, nested": (body(limits=None) + "limits: {file_mb: 1, file_mb: 2}\n", "'file_mb' stands twice"),
    "larger than 256 KiB": (body() + "#" * 300_000, "larger than"),
    "an unknown key": (body(shell="true"), "shell is not a known field"),
    "an unknown key in a step": (body(steps=[{"argv": ["/bin/x"], "shell": True}]), "shell is not a known field"),
    "another name than the file": (body(name="other"), "file and name must agree"),
    "a name with a slash": (body(name="a/b"), "lower-case letters"),
    "no name": (body(name=None), "name is missing"),
    "no description": (body(description=None), "description is missing"),
    "an empty description": (body(description=""), "description"),
    "no code": (body(code=None), "code is missing"),
    "code of a third kind": (body(code="branch"), "code"),
    "no time limit": (body(timeout_s=None), "timeout_s is missing"),
    "no time": (body(timeout_s=0), "timeout_s"),
    "more than a day": (body(timeout_s=86_401), "timeout_s"),
    "time as text": (body(timeout_s="60"), "timeout_s"),
    "no steps": (body(steps=None), "steps is missing"),
    "an empty list of steps": (body(steps=[]), "steps"),
    "17 steps": (body(steps=[{"argv": ["/bin/x"]}] * 17), "steps"),
    "a step as text": (body(steps=["/bin/x"]), "steps"),
    "a command as text": (body(steps=[{"argv": "/bin/x -l"}]), "argv"),
    "an empty command": (argv(), "argv"),
    "an empty element": (argv("/bin/x", ""), "argv"),
    "a number as an element": (argv("/bin/x", 5), "argv"),
    "a name to look up on PATH": (argv("python"), "must be an absolute path"),
    "a program below the tree": (argv("./tool"), "must be an absolute path"),
    "a parameter as the program": (argv("{n}", params={"n": INT}), "must be an absolute path"),
    "a placeholder within a word": (argv("/bin/x", "--n={n}", params={"n": INT}), "must be the whole element"),
    "a placeholder before a word": (argv("/bin/x", "{n}x", params={"n": INT}), "must be the whole element"),
    "two placeholders in a word": (argv("/bin/x", "{n}{n}", params={"n": INT}), "must be the whole element"),
    "a setting within a word": (argv("${ENV:HOMES}/bin/x"), "must be the whole element"),
    "a shell's variable": (argv("/bin/x", "${HOME}"), "must be the whole element"),
    "a newline in an element": (argv("/bin/x", "a\nb"), "must be the whole element"),
    "an undeclared parameter": (argv("/bin/x", "{n}"), "'n' must be both declared and used"),
    "an unused parameter": (body(params={"n": INT}), "'n' must be both declared and used"),
    "a parameter with a dash in its name": (
        argv("/bin/x", "{n-s}", params={"n-s": INT}), "'n-s' must consist of lower-case letters",
    ),
    "a malformed parameter": (argv("/bin/x", "{n}", params={"n": {**INT, "max": 0}}), "max is below min"),
    "a parameter with a default out of range": (
        argv("/bin/x", "{n}", params={"n": {**INT, "default": 9}}), "must be a whole number from 1 to 2",
    ),
    "a parameter of an unknown kind": (argv("/bin/x", "{n}", params={"n": {"type": "text"}}), "params.n"),
    "a path where no tree is": (argv("/bin/x", "{p}", params={"p": PATH}), "code must be 'request'"),
    "what a loader reads": (body(env={"DYLD_INSERT_LIBRARIES": "/x"}), "DYLD_INSERT_LIBRARIES may not be set"),
    "what a linker reads": (body(env={"LD_PRELOAD": "/x"}), "LD_PRELOAD may not be set"),
    "what Python reads": (body(env={"PYTHONPATH": "/x"}), "PYTHONPATH may not be set"),
    "what Python reads, passed": (body(pass_env=["PYTHONSTARTUP"]), "PYTHONSTARTUP may not be set"),
    "what git reads": (body(env={"GIT_SSH_COMMAND": "x"}), "GIT_SSH_COMMAND may not be set"),
    "what a shell reads": (body(env={"BASH_ENV": "/x"}), "BASH_ENV may not be set"),
    "what another shell reads": (body(env={"ENV": "/x"}), "ENV may not be set"),
    "the path of programs": (body(env={"PATH": "/x"}), "PATH may not be set"),
    "a variable in small letters": (body(env={"path": "/x"}), "env"),
    "a variable that is a number": (body(env={"A": 1}), "env"),
    "reports elsewhere": (body(collect=["results/other/x.json"]), "must lie below results/research/"),
    "reports above": (body(collect=["results/research/../../x"]), "must lie below results/research/"),
    "reports at the root": (body(collect=["/results/research/x"]), "must lie below results/research/"),
    "hidden reports": (body(collect=["results/research/.git/x"]), "must lie below results/research/"),
    "reports with a space": (body(collect=["results/research/a b.json"]), "consist of letters, digits, ., _, - and *"),
    "inputs beside the whole tree": (
        body(code="request", inputs={"under": "results/research", "ending": ".json"}), "inputs are for code",
    ),
    "inputs of another folder": (body(inputs={"under": "src", "ending": ".json"}), "inputs"),
    "a gate and nothing to judge": (body(gate="reports"), "needs something to collect"),
    "an unknown gate": (body(gate="perhaps", collect=["results/research/x"]), "no rule knows reports of kind"),
    "a gate of no kinds": (body(gate=[], collect=["results/research/x"]), "gate"),
    "a gate that is none and some": (
        body(gate=["none", "kakeya.recall"], collect=["results/research/x"]), "no rule knows reports of kind"
    ),
    "a kind and nothing to judge": (body(gate="kakeya.recall"), "needs something to collect"),
    "a limit of nothing": (body(limits={"file_mb": 0}), "limits.file_mb"),
    "a requirement that is no module": (body(requires=["mlx; import os"]), "requires"),
    "a fragment that does not exist": (body(use=["nowhere"]), "no fragment 'nowhere'"),
    "a fragment as text": (body(use="installed"), "use must be a list"),
    "a fragment that is a list": (body(use=[["installed"]]), "use must be a list"),
}  # fmt: skip


@pytest.mark.rows(44)
@pytest.mark.parametrize(("content", "wrong"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_file_is_named_with_what_is_wrong(tmp_path, content, wrong):
    file = tmp_path / "job.yaml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    (tmp_path / "good.yaml").write_text(body(name="good"))
    found = load_presets(tmp_path)
    assert found.keys() == {*INSTALLED, "good"}
    assert found.broken.keys() == {"job"}
    assert "job.yaml" in found.broken["job"].message
    assert wrong in found.broken["job"].message
    with pytest.raises(PresetError, match=r"the preset job cannot be used: .*job\.yaml") as caught:
        find_preset(found, "job")
    assert caught.value.code == "broken_preset"


def test_a_well_formed_file_is_read(tmp_path):
    (tmp_path / "job.yaml").write_text(body())
    assert load_presets(tmp_path) == {**INSTALLED, "job": preset()}


def test_an_installed_preset_that_changed_is_read_anew_by_the_same_process(tmp_path, monkeypatch):
    monkeypatch.setattr("bridge.presets.load.files", lambda _package: tmp_path)
    (tmp_path / "_fragments.yaml").write_text("installed: {code: installed}\n")
    (tmp_path / "job.yaml").write_text(body(description="once"))
    load_presets()["other"] = preset(name="other")
    assert {name: one.description for name, one in load_presets().items()} == {"job": "once"}

    (tmp_path / "job.yaml").write_text(body(description="later"))

    assert load_presets()["job"].description == "later"


def test_a_preset_of_the_folder_replaces_the_installed_one(tmp_path):
    (tmp_path / "noop.yaml").write_text(body(name="noop"))
    found = load_presets(tmp_path)
    assert found["noop"] == preset(name="noop")
    assert list(found) == sorted(INSTALLED)


def test_a_bad_file_does_not_let_the_installed_preset_of_its_name_through(tmp_path):
    (tmp_path / "noop.yaml").write_text("name: [")
    found = load_presets(tmp_path)
    assert "noop" not in found
    assert found.keys() == INSTALLED.keys() - {"noop"}


def test_a_folder_inherits_the_installed_fragments_and_may_replace_them_for_itself(tmp_path):
    (tmp_path / "_fragments.yaml").write_text("models: {labels: [big]}\n")
    (tmp_path / "mine.yaml").write_text(
        "name: mine\ndescription: x\nuse: [installed, models]\ntimeout_s: 5\n"
        "steps: [{use: [engine], argv: [probe]}]\n"
    )
    found = load_presets(tmp_path)
    assert found.broken == {}
    assert found["mine"].labels == ["big"]
    assert found["mine"].steps == INSTALLED["mlx-env-probe"].steps
    assert {name: found[name] for name in INSTALLED} == INSTALLED


def test_bad_fragments_break_the_presets_beside_them_and_no_other(tmp_path):
    (tmp_path / "_fragments.yaml").write_text("- a list\n")
    (tmp_path / "job.yaml").write_text(body())
    found = load_presets(tmp_path)
    assert found == INSTALLED
    assert "_fragments.yaml" in found.broken["job"].message


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "job.yaml").mkdir()
    assert re.search(r"cannot read .*job\.yaml", load_presets(tmp_path).broken["job"].message)


def test_a_folder_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(PresetError, match=r"no folder of presets at .*nowhere"):
        load_presets(tmp_path / "nowhere")


def test_fragments_are_laid_below_and_the_presets_own_keys_win(tmp_path):
    fragments = {
        "first": {"env": {"A": "1", "B": "1"}, "labels": ["x"]},
        "second": {"env": {"B": "2"}, "labels": ["y"]},
    }
    (tmp_path / "_fragments.yaml").write_text(yaml.safe_dump(fragments))
    (tmp_path / "job.yaml").write_text(body(use=["first", "second"], env={"C": "3"}))
    made = load_presets(tmp_path)["job"]
    assert made.env == {"A": "1", "B": "2", "C": "3"}
    assert made.labels == ["y"]


PIECES = {"first": {"argv": ["/bin/x", "-a"]}, "second": {"argv": ["-b"]}, "whole": {"labels": ["x"]}}


def put_together(folder, step):
    (folder / "_fragments.yaml").write_text(yaml.safe_dump(PIECES))
    (folder / "job.yaml").write_text(body(steps=[step]))
    return commands_of(find_preset(load_presets(folder), "job"), {}, {})


def test_a_step_is_put_together_from_pieces_in_order_with_its_own_argv_last(tmp_path):
    step = {"use": ["first", "second", "first"], "argv": ["end"]}
    assert put_together(tmp_path, step) == [["/bin/x", "-a", "-b", "/bin/x", "-a", "end"]]
    assert put_together(tmp_path, {"use": ["first"]}) == [["/bin/x", "-a"]]


@pytest.mark.parametrize(
    "step",
    [
        {"use": ["third"]},
        {"use": ["whole"], "argv": ["/bin/x"]},
        {"use": [1], "argv": ["/bin/x"]},
        {"use": "first"},
        {"use": ["first"], "argv": "end"},
        {"use": ["first"], "env": {}},
        {"use": []},
    ],
    ids=["unknown", "of-a-preset", "number", "word", "argv-word", "other-key", "nothing"],
)
def test_a_step_of_other_pieces_is_refused(tmp_path, step):
    with pytest.raises(PresetError, match=r"cannot be used: job\.yaml: "):
        put_together(tmp_path, step)


def test_a_piece_of_a_command_is_no_part_of_a_preset(tmp_path):
    (tmp_path / "_fragments.yaml").write_text(yaml.safe_dump(PIECES))
    (tmp_path / "job.yaml").write_text(body(use=["first"]))
    assert "argv" in load_presets(tmp_path).broken["job"].message


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != COMPARE])
def test_each_kind_can_be_the_gate(kind):
    collect = ["results/research/x.json"]
    assert preset(gate=kind, collect=collect).kinds == [kind]
    assert preset(gate=[kind, "kakeya.recall"], collect=collect).kinds == [kind, "kakeya.recall"]
    assert preset(gate=kind, collect=collect).gated


def test_the_runner_alone_makes_comparisons_so_no_gate_asks_for_one():
    with pytest.raises(ValueError, match=r"no rule knows reports of kind 'kakeya\.compare'"):
        preset(gate=COMPARE, collect=["results/research/x.json"])


def test_a_gate_for_any_kind_names_none():
    assert preset(gate="reports", collect=["results/research/x.json"]).kinds == []
    assert not preset().gated


CHANGES = {
    "description": {"description": "Another job."},
    "code": {"code": "request"},
    "command": {"steps": [{"argv": ["/bin/echo", "hullo"]}]},
    "a step more": {"steps": [*BASE["steps"], {"argv": ["/bin/true"]}]},
    "bounds": {"params": {"n": {**INT, "max": 3}}, "steps": [{"argv": ["/bin/echo", "{n}"]}]},
    "time": {"timeout_s": 61},
    "reports": {"collect": ["results/research/x.json"]},
    "gate": {"collect": ["results/research/x.json"], "gate": "reports"},
    "kinds of its own": {
        "collect": ["results/research/x.json"],
        "gate": "mine",
        "reports": {"mine": {"schema": {}}},
    },
    "files": {"leaves": ["a/*.whl"]},
    "labels": {"labels": ["gpu"]},
    "requirements": {"requires": ["mlx"]},
    "variables": {"env": {"A": "1"}},
    "variables passed": {"pass_env": ["A"]},
    "network": {"network": True},
    "limits": {"limits": {"file_mb": 1}},
    "inputs": {"inputs": {"under": "results/research", "ending": ".json"}},
    "comparison": {"code": "request", "compare": {"measure": "wall"}},
}


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_whatever_changes_the_digest_changes(changes):
    assert preset(**changes).digest != preset().digest


def test_every_field_is_among_the_changes_that_are_tried():
    tried = {field for changes in CHANGES.values() for field in changes}
    assert tried | {"name", "cannot_show"} == set(Preset.model_fields)


NUMBER = {"measure": "printed", "pointer": "/ns", "unit": "ns", "better": "lower"}
WRONG_COMPARISONS = {
    "needs `pointer` if measure is 'printed'": {"measure": "printed"},
    "needs `better` if measure is 'printed'": {name: NUMBER[name] for name in ("measure", "pointer", "unit")},
    "takes `better` only if measure is 'printed'": {"measure": "wall", "better": "higher"},
    "takes `pointer` only if measure is 'printed'": {"measure": "processor", "pointer": "/ns"},
    "must begin with /": {**NUMBER, "pointer": "ns"},
    "greater than or equal to 6": {"measure": "wall", "rounds": 5},
    "less than or equal to 100": {"measure": "wall", "rounds": 101},
}


@pytest.mark.parametrize("words", WRONG_COMPARISONS)
def test_a_comparison_that_cannot_be_made_is_refused(words):
    with pytest.raises(ValueError, match=re.escape(words)):
        preset(code="request", compare=WRONG_COMPARISONS[words])


def test_a_comparison_needs_the_requests_tree():
    assert preset(code="request", compare=NUMBER).compare.rounds == 10
    with pytest.raises(ValueError, match="compare needs the request's tree, so code must be 'request'"):
        preset(compare=NUMBER)


def test_the_digest_does_not_depend_on_the_order_of_keys():
    steps = [{"argv": ["/bin/x", "{n}", "{m}"]}]
    fields = {"params": {"n": INT, "m": INT}, "steps": steps, "env": {"A": "1", "B": "2"}}
    turned = {key: copy.deepcopy(fields[key]) for key in reversed(fields)}
    turned["params"] = dict(reversed(fields["params"].items()))
    turned["env"] = dict(reversed(fields["env"].items()))
    assert preset(**turned).digest == preset(**fields).digest
    assert preset().digest.startswith("sha256:")


def test_a_default_spelled_out_means_the_same():
    assert preset(network=False, gate="none").digest == preset().digest


@pytest.mark.parametrize("name", ["job.yaml", "_fragments.yaml"])
@pytest.mark.parametrize(
    "place", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["pipe", "device"]
)
def test_what_is_no_file_is_told_and_not_waited_for(tmp_path, name, place):
    (tmp_path / "other.yaml").write_text("{}")
    place(tmp_path / name)

    broken = load_presets(tmp_path).broken

    assert "is not a regular file" in broken["job" if name == "job.yaml" else "other"].message


LEAVING = {
    "name": "x", "description": "y", "code": "installed", "timeout_s": 1, "steps": [{"argv": ["/bin/true"]}],
}  # fmt: skip


class TestLeaves:
    """Patterns of files that a job must leave."""

    @pytest.mark.parametrize(
        "leaves",
        [
            *map(
                list,
                zip(
                    ("/etc/x", "../x", "a/../b", ".", "a//b", "a/", "", "-x", "a b", "a\n", "{n}", "x" * 201)
                ),
            ),
            ["x"] * 17,
            "x",
        ],
    )
    def test_other_patterns_are_refused(self, leaves):
        with pytest.raises(ValidationError):
            Preset.model_validate({**LEAVING, "leaves": leaves})

    def test_they_are_in_the_digest_only_if_there_are_any(self):
        plain, none, some = (
            Preset.model_validate({**LEAVING, **more})
            for more in ({}, {"leaves": []}, {"leaves": ["a/*.whl"]})
        )

        assert plain.digest == none.digest
        assert some.digest != plain.digest
