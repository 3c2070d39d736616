"""``kakeya-engine codec``: what the KV codecs do to vectors."""

import click

from bridge.common.lazy import LazyGroup

COMMANDS = {
    "decode": "Decode SOURCE, written by `encode`, into TARGET (.npy for one array, or .safetensors).",
    "encode": "Encode the arrays of SOURCE (.npy or .safetensors) along their last axis into TARGET (.safetensors).",
    "info": "Show the arrays of SOURCE: shape, type, codec, bytes, and bits per value.",
    "rd": "Print the rate-distortion table of the codecs, on seeded data or on a model's keys and values.",
}


@click.group(cls=LazyGroup, package=__name__, table=COMMANDS)
def command() -> None:
    """Measure and use the KV codecs."""
