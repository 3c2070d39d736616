"""Makes a runner's first key, and says how a maintainer pins it."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from bridge.common.cli.output import say
from bridge.errors import KakeyaError
from bridge.verify.public_keys import PINNED_FILE, SETTING, PublicKey
from runner.state import signing_key


def pin_command(keys: Sequence[PublicKey]) -> str:
    """Return the shell command that pins keys on the current branch of a clone, beside those that are pinned there."""
    lines = shlex.join([line for key in keys for line in key.text.splitlines()])
    folder = PurePosixPath(PINNED_FILE).parent
    return " && ".join(
        (
            f"mkdir -p {folder}",
            f"printf '%s\\n' {lines} >>{PINNED_FILE}",
            f"git add {PINNED_FILE}",
            f"git commit -m 'Pin the key of a runner' -- {PINNED_FILE}",
            "git push origin HEAD",
        )
    )


def how_to_pin(keys: Sequence[PublicKey], file: Path) -> Iterator[str]:
    """Yield the lines that say how to pin keys: for all readers or, from ``file``, for a reader on this machine."""
    yield "to pin it for everybody, a maintainer runs this in a clone of the bus, on its main branch:"
    yield f"  {pin_command(keys)}"
    yield f"or, for one clone on this machine: git config {SETTING} {shlex.quote(str(file))}"


def make_first_key(state_folder: Path) -> None:
    """Make the signing key if there is none; print where it is and how to pin it. Failures are printed, not raised."""
    try:
        is_new = signing_key.make_missing_key(state_folder)
        keys = signing_key.public_keys(state_folder)
    except OSError as error:
        say(f"no key was made, so answers will not be signed: {error.strerror} ({state_folder})")
        say("fix: as the user that will serve, run kakeya-runner keygen")
    except KakeyaError as error:
        say(f"no key was made: {error.message}")
        if error.fix:
            say(f"fix: {error.fix}")
    else:
        outcome = "answers are signed with the new key" if is_new else "answers are signed with the key"
        say(f"{outcome} {state_folder / signing_key.PRIVATE} ({keys[0].short})")
        for line in how_to_pin(keys, state_folder / signing_key.PUBLIC):
            say(line)
