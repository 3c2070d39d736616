"""Checks the signature on an answer: made with a pinned key, and for exactly the content of the branch."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from bridge.bus import history, objects, wire
from bridge.bus.history import RequestBranch
from bridge.bus.wire import Result
from bridge.checklist import SIGNATURE, Check
from bridge.errors import InfrastructureError, VerificationError
from bridge.system.git import Git
from bridge.verify import attestation
from bridge.verify.answer_files import Files
from bridge.verify.public_keys import HOW_TO_PIN, Pin, PublicKey
from bridge.verify.verdict import SignatureCheck, Trust

# What a runner signed, as JSON.
Statement = dict[str, Any]

_SHOWN = 20

HOW_TO_SIGN = (
    "The runner that answered has no key: `kakeya-runner keygen` on its machine makes one, and prints how to pin it. "
    "Later answers are signed."
)
HOW_TO_ASK_AGAIN = (
    "Anyone who may push can have written it. If the runner has a key by now, send the request again: "
    "`kakeya-runner status` on its machine names its key."
)


def check_signature(
    files: Files,
    result: Result,
    pin: Pin | None,
    elsewhere: Callable[[Statement], Iterable[str]],
    *,
    unseen: Sequence[str] = (),
) -> Check:
    """Check the signed evidence of an answer.

    The check is True if a pinned key signed exactly this answer; False if none did, even if there is no signature;
    None if no key is pinned, because a signature by an unknown key shows nothing. ``elsewhere`` yields further
    differences from the signed statement. The files in ``unseen`` are not available here.
    """
    if pin is None:
        is_signed = wire.EVIDENCE in files.files
        sentence = "it is signed, but no key is pinned here" if is_signed else "it is not signed"
        message = f"{sentence}: this shows that the answer is whole, not who wrote it"
        trust, fix = (Trust.UNPINNED, HOW_TO_PIN) if is_signed else (Trust.UNSIGNED, HOW_TO_SIGN)
        return SignatureCheck(SIGNATURE, ok=None, message=message, fix=fix, trust=trust)
    try:
        key = _signer(files, result, pin, elsewhere, unseen)
    except (VerificationError, InfrastructureError) as error:
        return Check(SIGNATURE, ok=False, message=error.message, fix=error.fix)
    message = f"signed by {result.runner.id} with {key.short}, pinned by {pin.source}"
    return SignatureCheck(SIGNATURE, ok=True, message=message, trust=Trust.SIGNED, signer=result.runner.id)


def on_branch(git: Git, branch: RequestBranch, result: Result) -> Callable[[Statement], Iterator[str]]:
    """Return a function that yields how the answer's branch differs from the signed statement."""

    def differing(signed: Statement) -> Iterator[str]:
        upon = _upon(signed)
        if result.branch != branch.name:
            yield f"it is the answer on {result.branch}, not on {branch.name}"
        if not objects.is_commit(git, upon) or not history.is_ancestor(git, upon, branch.tip):
            yield f"the history was rewritten: the answer was made upon {upon[:12]}, which is not part of this branch"
            return
        # The cancellation is not a file of the answer: the runner only repeats it.
        names = [f"{commit}:{wire.CANCEL}" for commit in (upon, branch.tip)]
        before, now = objects.read_many(git, names, max_bytes=wire.MAX_STATE)
        if now is not None and (before is None or wire.parse_cancel(now) != wire.parse_cancel(before)):
            yield f"{wire.CANCEL} is not covered by the signature"

    return differing


def _signer(
    files: Files,
    result: Result,
    pin: Pin,
    elsewhere: Callable[[Statement], Iterable[str]],
    unseen: Sequence[str],
) -> PublicKey:
    """Return the pinned key that signed the answer; a VerificationError says that none did."""
    pinned = f"(pinned by {pin.source}: {pin.shown})"
    if wire.EVIDENCE not in files.files:
        raise VerificationError(f"it is not signed, and a key is pinned {pinned}", fix=HOW_TO_ASK_AGAIN)
    data = files.read([wire.EVIDENCE], wire.MAX_EVIDENCE).get(wire.EVIDENCE)
    if data is None:
        raise VerificationError(f"{wire.EVIDENCE} is larger than {wire.MAX_EVIDENCE} bytes")
    paths = [wire.RESULT, wire.REQUEST, *(file.path for file in result.files)]
    try:
        signed, key = attestation.open_envelope(data, pin.keys)
        changed = [*differences(signed, result, files.digests(paths), unseen), *elsewhere(signed)]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise VerificationError(f"the signed content is not valid evidence {pinned}") from error
    except VerificationError as error:
        raise VerificationError(f"{error.message} {pinned}", fix=error.fix) from error
    if changed:
        more = [f"and {len(changed) - _SHOWN} more"] if len(changed) > _SHOWN else []
        raise VerificationError("; ".join([*changed[:_SHOWN], *more]))
    return key


def differences(
    signed: Statement, result: Result, files: Mapping[str, str], unseen: Sequence[str] = ()
) -> Iterator[str]:
    """Yield the differences between a signed statement and an answer's files, whose digests are given.

    The files in ``unseen`` are not available here.

    Raises:
        VerificationError: the version is unknown.
    """
    if signed.get("predicate", {}).get("kakeya", {}).get("version") != attestation.VERSION:
        raise VerificationError("the evidence is of a version that this program does not know")
    expected = attestation.make_statement(result, files, _upon(signed))
    there = {name: digest for name, digest in _digests(signed).items() if name not in unseen}
    yield from _subjects(there, _digests(expected))
    yield from _fields(signed["predicate"], expected["predicate"])


def _upon(signed: Statement) -> str:
    return str(signed.get("predicate", {}).get("kakeya", {}).get("upon"))


def _digests(statement: Statement) -> dict[str, str]:
    digests = {}
    for subject in statement.get("subject", ()):
        (digest,) = subject["digest"].values()
        digests[str(subject["name"])] = str(digest)
    return digests


def _subjects(signed: dict[str, str], here: dict[str, str]) -> Iterator[str]:
    for name in sorted(signed.keys() | here.keys()):
        before, now = signed.get(name), here.get(name)
        if before is None:
            yield f"{name!a} is not covered by the signature"
        elif now is None:
            yield f"{name!a} was signed and is missing"
        elif before != now:
            yield f"{name!a} was changed: signed as {before[:12]}, here {now[:12]}"


def _fields(signed: object, here: object, name: str = "") -> Iterator[str]:
    if isinstance(signed, dict) and isinstance(here, dict):
        for key in sorted(signed.keys() | here.keys()):
            yield from _fields(signed.get(key), here.get(key), f"{name}.{key}" if name else str(key))
    elif signed != here:
        yield f"{name.removeprefix('kakeya.')} was changed: signed as {_short(signed)}, here {_short(here)}"


def _short(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 80 else text[:77] + "..."  # noqa: PLR2004 - a line's worth
