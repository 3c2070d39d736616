"""The first steps of a runner: ``kakeya-runner init``, ``pin`` and ``keygen``."""

from pathlib import Path

import click

from bridge.common.cli.commands import REFERENCE, flag, json_option, option
from bridge.common.cli.output import put, put_block, put_json, say
from runner.cli.common import forward_option, say_forwarded, say_refused
from runner.cli.pinning import how_to_pin, make_first_key
from runner.host.interpreter import find, pin
from runner.policy import default_path, load_policy, write_template
from runner.state import signing_key
from runner.state.activity import read_facts
from runner.state.heartbeat import serving_process


@click.command()
@option("--bus url", REFERENCE, required=True, metavar="URL", help="The git remote to serve.")
@option("--id runner_id", metavar="NAME", help="This runner's name.  [default: the host's]")
@option(
    "--python", REFERENCE, metavar="PATH", help="The interpreter that runs jobs.  [default: the runner's own]"
)
@forward_option
@click.pass_obj
def init_command(
    policy: Path | None, url: str, runner_id: str | None, python: str | None, forward: tuple[str, ...]
) -> None:
    """Write a first policy file, and make the key that signs answers.

    The policy refuses presets that run the requester's own code; edit it to allow more. It pins the interpreter by
    its real path and version. An existing key is kept. The command that pins the key for all readers is printed.
    """
    path = policy or default_path()
    interpreter, version = find(python)
    write_template(path, url, runner_id, interpreter=interpreter, version=version, forward=forward)
    rules = load_policy(path)
    put(path)
    say_refused(rules)
    say_forwarded(rules)
    make_first_key(rules.state)
    say("next: kakeya-runner check")
    say(
        "presets of your own: name their folder as `preset_folder` in the policy, and share copies with requesters in"
    )
    say(
        "      .kakeya/presets on the bus's default branch, which never run here; `kakeya init` writes a first one"
    )


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

    The private key stays in the state folder, readable only by its owner. The public keys are printed, for a maintainer
    to pin: the new one, and below it the older ones, which still verify the answers that they signed. A runner that is
    already serving uses a new key after its next start.
    """
    state = load_policy(policy).state
    if not show:
        signing_key.make_key(state, force=force)
    keys = signing_key.public_keys(state)
    text = "".join(key.text for key in keys)
    serving = None if show else serving_process(state)
    if as_json:
        file = str(state / signing_key.PUBLIC)
        older = [f"sha256:{key.id}" for key in keys[1:]]
        known = {"key_id": f"sha256:{keys[0].id}", "older_key_ids": older, "public_key": text, "file": file}
        put_json(known if show else {**known, "needs_restart": serving is not None})
        return
    put_block(text)
    if serving is not None:
        signs = _signs_with(state)
        say(f"the runner that serves now, process {serving.pid}, {signs} until it is restarted")
    if len(keys) > 1 and not show:
        say("keep the old public keys beside the new one wherever they are pinned: older answers need them;")
        say("      the text above holds all of them. If an old key leaked, delete its block here and there")
    for line in how_to_pin(keys, state / signing_key.PUBLIC):
        say(line)


def _signs_with(state_folder: Path) -> str:
    """Return the key with which the serving process says that it signs."""
    facts = read_facts(state_folder)
    if facts is None or "key" not in facts.about:
        return "signs as it did before"
    key = facts.about["key"]
    return f"signs with the old key {key}" if key else "does not sign its answers"
