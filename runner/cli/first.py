"""The first steps of a runner: ``kakeya-runner init``, ``pin`` and ``keygen``."""

from pathlib import Path

import click

from bridge.common.cli.commands import REFERENCE, flag, json_option, option
from bridge.common.cli.output import put, put_block, put_json, say
from bridge.verify.public_keys import PINNED_FILE, SETTING
from runner.cli.common import say_refused
from runner.host.interpreter import find, pin
from runner.policy import default_path, load_policy, write_template
from runner.state import signing_key


@click.command()
@option("--bus url", REFERENCE, required=True, metavar="URL", help="The git remote to serve.")
@option("--id runner_id", metavar="NAME", help="This runner's name.  [default: the host's]")
@option(
    "--python", REFERENCE, metavar="PATH", help="The interpreter that runs jobs.  [default: the runner's own]"
)
@click.pass_obj
def init_command(policy: Path | None, url: str, runner_id: str | None, python: str | None) -> None:
    """Write a first policy file.

    The policy refuses presets that run the requester's own code; edit it to allow more. It pins the interpreter by
    its real path and version.
    """
    path = policy or default_path()
    interpreter, version = find(python)
    write_template(path, url, runner_id, interpreter=interpreter, version=version)
    rules = load_policy(path)
    put(path)
    say_refused(rules)
    say("next: kakeya-runner check")


@click.command()
@option("--python", REFERENCE, metavar="PATH", help="Interpreter to pin.  [default: the one in the policy]")
@click.pass_obj
def pin_command(policy: Path | None, python: str | None) -> None:
    """Pin the interpreter that runs jobs in the policy, with its current version.

    If a runner is serving, restart it: it reads its policy only when it starts.
    """
    path = policy or default_path()
    interpreter, version = find(python or str(load_policy(path).interpreter))
    pin(path, interpreter, version)
    put(f"{interpreter} {version}")
    say("next: kakeya-runner check")


@click.command()
@flag("--show", "Print the existing public key; create none.")
@flag("--force", "Replace an existing key.")
@json_option
@click.pass_obj
def keygen_command(policy: Path | None, *, show: bool, force: bool, as_json: bool) -> None:
    """Create the key with which this runner signs its answers.

    The private key stays in the state folder, readable only by its owner. The public key is printed, for a
    maintainer to pin. A runner that is already serving uses a new key after its next start.
    """
    state = load_policy(policy).state
    key = signing_key.public_key(state) if show else signing_key.make_key(state, force=force)
    if as_json:
        file = str(state / signing_key.PUBLIC)
        put_json({"key_id": f"sha256:{key.id}", "public_key": key.text, "file": file})
        return
    put_block(key.text)
    say(f"next: commit it as {PINNED_FILE} on the bus's main branch, which only maintainers may push to;")
    say(f"      or, for one reader: git config {SETTING} FILE")
