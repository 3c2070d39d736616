"""What the bundled models answer to the defaults of each preset that times speculative decoding.

The gate accepts no speed of text that repeats itself. Answers are greedy, so a default whose answers do so is rejected
in each run, on any machine.
"""

from __future__ import annotations

from functools import cache

import pytest

from bridge.evidence.stats import loops
from bridge.presets import load_presets
from engine.cli.bench.spec import spec, workloads_of
from engine.dflash import stream_generate
from engine.measure import prompts
from engine.models import load

PAIRS = ("tiny", "tiny-hybrid")
# As the gate's rule WORKLOAD_DEGENERATE has it.
MOST = 0.2


def asked_by_default() -> dict[str, list[str]]:
    """Return the arguments of each step that starts ``bench spec``, by the preset and the step's number."""
    env = dict.fromkeys(("KAKEYA_MAC_VERIFIER_PATH", "KAKEYA_MAC_DRAFTER_ID"), PAIRS[0])
    found = {}
    for name, preset in load_presets().items():
        if not preset.gated:
            continue
        steps = preset.build_commands(
            preset.check_params({}), {**env, "KAKEYA_MAC_PYTHON": "/usr/bin/python3"}
        )
        for i, argv in enumerate(steps):
            if argv[4:6] == ["bench", "spec"]:
                found[f"{name}-{i}"] = argv[6:]
    return found


ASKED = asked_by_default()


def test_steps_are_found():
    assert len(ASKED) >= 7


@cache
def loaded(model):
    return load(model)


@cache
def repeats(model, ids, max_tokens, *, fixed_length) -> bool:
    """Return whether a model's plain answer to a prompt repeats itself. Many presets ask the same."""
    pair = loaded(model)
    stops = () if fixed_length else None
    steps = stream_generate(
        pair.target, None, pair.tokenizer, ids, max_tokens=max_tokens, stop_tokens=stops, lookup=False
    )
    return loops([token for step in steps for token in step.tokens])


@pytest.mark.parametrize("model", PAIRS)
@pytest.mark.parametrize("step", ASKED)
def test_no_default_times_text_that_repeats_itself(step, model):
    options = spec.make_context("spec", list(ASKED[step])).params
    pair = loaded(model)
    for workload in workloads_of(pair, options, chat=pair.chats):
        encoded = prompts.encode(workload.prompts, pair.tokenizer, chat=pair.chats)
        looping = [
            prompt.id
            for prompt in encoded
            if repeats(model, prompt.ids, options["max_tokens"], fixed_length=options["fixed_length"])
        ]
        assert len(looping) <= MOST * len(encoded), (workload.name, looping)
