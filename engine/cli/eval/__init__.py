"""``kakeya-engine eval``: how caches, codecs and drafters change a model's answers."""

import click

from bridge.common.cli.commands import LazyGroup

COMMANDS = {
    "acceptance": "Measure draft acceptance and the resulting speed on sets of prompts.",
    "kv-quant": "Compare caches at equal stored bits: error, KL divergence, top token, perplexity.",
    "parity": "Run two drafters on the same inputs, step by step, and count the tokens on which they agree.",
    "pass-at-1": "Let the model solve HumanEval's problems, and run each solution against the problem's tests.",
    "recall": "Test needle recall with each cache, with a control that must fail and one that must succeed.",
    "restored-prefill": (
        "Test recall of needles that the cache has evicted and restored: exactly, from codes, by a restorer, or not."
    ),
    "serve-conformance": "Ask the server in every combination of drafts, caches, kept prompts, clients and grammars.",
}


@click.group(name="eval", cls=LazyGroup, package=__name__, table=COMMANDS)
def command() -> None:
    """Evaluate a model: needle recall, caches at equal bits, drafter parity, restored prompts, the server."""
