"""``kakeya-engine eval``: what caches, codecs and drafters do to a model."""

import click

from engine.cli.lazy import LazyGroup

COMMANDS = {
    "acceptance": "engine.cli.eval.acceptance:acceptance",
    "kv-quant": "engine.cli.eval.kv_quant:kv_quant",
    "parity": "engine.cli.eval.parity:parity",
    "recall": "engine.cli.eval.recall:recall",
    "restored-prefill": "engine.cli.eval.restored_prefill:restored_prefill",
    "serve-conformance": "engine.cli.eval.serve_conformance:serve_conformance",
}


@click.group(name="eval", cls=LazyGroup, commands_at=COMMANDS)
def evaluate() -> None:
    """Evaluate a model: needle recall, caches at equal bits, drafter parity, restored prompts, the server."""
