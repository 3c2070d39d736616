"""``kakeya-runner keygen``."""

from __future__ import annotations

from pathlib import Path

import click

from bridge.common.cli.commands import flag, json_option
from bridge.common.cli.output import put_block, put_json, say
from bridge.verify.pins import PINNED_FILE, SETTING
from runner.policy import load_policy
from runner.state import signing_key


@click.command()
@flag("--show", "Print the existing public key; create none.")
@flag("--force", "Replace an existing key.")
@json_option
@click.pass_obj
def command(policy: Path | None, *, show: bool, force: bool, as_json: bool) -> None:
    """Create the key with which this runner signs its answers.

    The private key stays in the state folder, readable only by its owner. The public key is printed, for a
    maintainer to pin. A runner that is already serving uses a new key after its next start.
    """
    state = load_policy(policy).state
    key = signing_key.public_key(state) if show else signing_key.make_key(state, force=force)
    if as_json:
        put_json(
            {"key_id": f"sha256:{key.id}", "public_key": key.text, "file": str(state / signing_key.PUBLIC)}
        )
        return
    put_block(key.text)
    say(f"next: commit it as {PINNED_FILE} on the bus's main branch, which only maintainers may push to;")
    say(f"      or, for one reader: git config {SETTING} FILE")
