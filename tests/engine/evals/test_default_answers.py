"""What the bundled models answer to the defaults of each preset that times decoding.

Nothing is claimed of the speed of text that repeats itself. Answers are greedy, so a default whose answers do so says
nothing of speed in any run, on any machine.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from bridge.presets import load_presets
from bridge.reports.repetition import MOST, repeats_itself
from engine.cli.bench import native, spec
from engine.cli.bench.spec import workloads_of
from engine.dflash import stream_generate
from engine.harness import prompt_sets
from engine.models import load

PAIRS = ("tiny", "tiny-hybrid")


# Commands that time answers, and what tells their prompts.
TIMING = {
    ("bench", "spec"): (spec.command, workloads_of),
    ("bench", "native"): (
        native.command,
        lambda pair, options, *, chat: workloads_of(pair, {**options, "needles": None}, chat=chat),
    ),
}


def asked_by_default() -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """Return each step that times answers over raw caches, by the preset and the step's number.

    Packed caches answer much as raw ones do, and take many times as long here.
    """
    found = {}
    for name, preset in load_presets().items():
        env = dict.fromkeys(preset.env_names, PAIRS[0])
        steps = preset.build_commands(preset.check_params({}), env) if preset.gated else []
        for i, (_, _, _, _, group, subcommand, *given) in enumerate(steps):
            command, workloads = TIMING.get((group, subcommand), (None, None))
            options = command.make_context(subcommand, given).params if command else {}
            if options.get("cache") == "raw":
                found[f"{name}-{i}"] = workloads, options
    return found


ASKED = asked_by_default()


def test_steps_of_each_command_are_found():
    assert {workloads for workloads, _ in ASKED.values()} == {workloads for _, workloads in TIMING.values()}


@cache
def loaded(model):
    return load(model)


@cache
def repeats(model, ids, max_tokens, *, fixed_length) -> bool:
    """Return whether a model's plain answer to a prompt repeats itself. Many presets ask the same."""
    pair = loaded(model)
    steps = stream_generate(
        pair.target, None, pair.tokenizer, ids,
        max_tokens=max_tokens, lookup=False,
        stop_tokens=() if fixed_length else None,
    )  # fmt: skip
    return repeats_itself([token for step in steps for token in step.tokens])


@pytest.mark.long
@pytest.mark.rows(1)
@pytest.mark.parametrize("model", PAIRS)
@pytest.mark.parametrize("step", ASKED)
def test_no_default_times_text_that_repeats_itself(step, model):
    workloads, options = ASKED[step]
    pair = loaded(model)
    fixed = bool(options.get("fixed_length"))
    for workload in workloads(pair, options, chat=pair.chats):
        encoded = prompt_sets.encode(workload.prompts, pair.tokenizer, chat=pair.chats)
        looping = [
            prompt.id
            for prompt in encoded
            if repeats(model, prompt.ids, options["max_tokens"], fixed_length=fixed)
        ]
        assert len(looping) <= MOST * len(encoded), looping
