"""Whatever mlx-lm decodes, our loop decodes too: on every architecture, with every rollback that is offered.

`pytest -m sweep` runs all architectures; without it a sample runs, one for each way of keeping state.
"""

import numpy as np
import pytest

from engine.cache import make_caches
from engine.dflash import loop
from engine.dflash.divergence import classify
from engine.dflash.rollback import KINDS, rollback_for
from engine.errors import BadInput
from engine.lm import generate_step
from engine.mx import mx
from tests.engine import architectures
from tests.engine.drafts import Foretelling

TOKENS = 14
SAMPLE = {
    "baichuan_m1": "one call writes a recurrent state and keys and values",
    "deepseek_v32": "two caches a layer, one of which is written into",
    "falcon_h1": "a recurrent state beside keys and values in every layer",
    "gemma3n": "layers that share keys and values",
    "gpt_oss": "attention sinks, and rings",
    "mamba2": "recurrent states only",
    "nemotron-nas": "caches that their layers never use",
    "qwen3_5": "gated delta layers",
    "recurrent_gemma": "states that a layer's inner modules never see, and rings",
    "rwkv7": "three states a layer",
}
PROMPTS = {"one token": [7], "longer than a window": np.random.default_rng(1).integers(1, 120, 21).tolist()}


@pytest.mark.parametrize("name", architectures.cases(SAMPLE))
def test_an_architecture_decodes_what_mlx_lm_does(name, monkeypatch):
    model = architectures.build(name)
    if name in architectures.NOT_OFFERED:
        with pytest.raises(BadInput, match=architectures.NOT_OFFERED[name]):
            rollback_for(make_caches(model, "raw"), "auto", model)
        return
    offered, accepted = [], 0
    for prompt in PROMPTS.values():
        expected = [token for token, _ in generate_step(mx.array(prompt), model, max_tokens=TOKENS)]
        for kind in KINDS:
            caches = make_caches(model, "raw")
            try:
                rollback_for(caches, kind, model)
            except BadInput:
                continue
            offered.append(kind)
            monkeypatch.setattr(loop, "Lookup", lambda p=prompt, e=expected: Foretelling(e, p))
            options = {"max_tokens": TOKENS, "block_size": 5, "rollback": kind, "adaptive": False}
            steps = list(loop.stream_generate(model, None, None, prompt, caches=caches, **options))
            tokens = [token for step in steps for token in step.tokens]
            parted = classify(model, lambda: make_caches(model, "raw"), prompt, tokens, expected)
            assert parted is None or parted.kind == "tie", (kind, len(prompt), parted)
            accepted += sum(step.accepted for step in steps)
    assert {"auto", "carry"} <= set(offered)
    assert accepted > TOKENS  # partly right drafts were taken: there was something to take back
