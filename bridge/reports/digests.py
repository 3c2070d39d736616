"""The digests that bind a report to the run that measured it.

The engine prints them on standard error, and so into the runner's log, while it measures:

    kakeya-report DIGEST                before the first row: the digest of the report's header
    kakeya-rows ID COUNT DIGEST         at most once a second: the digest of the header and of all rows so far
    kakeya-end ID DIGEST                when the report is written: the digest of the whole report

ID is the first 16 digits of the header's digest, so that one job can write several reports. Older engines print only
``kakeya-rows COUNT DIGEST``, a chain of the rows alone.

Any other program vouches for a file by one line with the run's id (``KAKEYA_RUN_ID``) and the file's SHA-256:

    kakeya-file RUN DIGEST
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

# The environment variable in which a runner names the run to its job.
VARIABLE = "KAKEYA_RUN_ID"
REPORT, ROWS, END, FILE = "kakeya-report", "kakeya-rows", "kakeya-end", "kakeya-file"
RUN_ID = re.compile(r"[0-9a-f]{64}")
ID_LENGTH = 16

# Parts of a report that are known only after its first row.
_LATER = ("rows", "claims", "seconds", "created_at")
_LATER_OF_IDENTITY = ("load", "power")
# Fields that are added to a row after its measurement, and so are not in its digest.
_LATER_OF_ROW = ("divergence",)

# The lines of digests. `readable` hides them from people.
DIGESTS = (
    rb"kakeya-report (?P<header>[0-9a-f]{64})",
    rb"kakeya-rows (?:(?P<rows_id>[0-9a-f]{16}) )?(?P<count>\d{1,9}) (?P<rows>[0-9a-f]{64})",
    rb"kakeya-end (?P<end_id>[0-9a-f]{16}) (?P<end>[0-9a-f]{64})",
)
# The line by which any other program vouches for a file. It is hidden too.
VOUCHED = rb"kakeya-file (?P<run>[0-9a-f]{64}) (?P<digest>[0-9a-f]{64})"
_CUT = rb"\n\[\.\.\. \d+ bytes left out \.\.\.\] "
_LINE = re.compile(b"|".join((*DIGESTS, _CUT)))
_FILE_LINE = re.compile(b"|".join((rb"%s(?![0-9a-f])" % VOUCHED, _CUT)))


def canonical(value: object) -> bytes:
    """Return the bytes of a JSON value that are hashed: sorted names, no blanks, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def header_digest(report: Mapping[str, Any]) -> str:
    """Return the digest of a report's header, as 64 hexadecimal digits.

    The header is everything known before the first row: models, prompts, arms, options, code, host and run.
    """
    header = {name: value for name, value in report.items() if name not in _LATER}
    identity = header.get("identity")
    if isinstance(identity, dict):
        header["identity"] = {name: v for name, v in identity.items() if name not in _LATER_OF_IDENTITY}
    return hashlib.sha256(canonical(header)).hexdigest()


def report_digest(report: Mapping[str, Any]) -> str:
    """Return the digest of a whole report, as 64 hexadecimal digits."""
    return hashlib.sha256(canonical(report)).hexdigest()


def tokens_digest(tokens: Iterable[int]) -> str:
    """Return the digest of token ids, as 64 hexadecimal digits."""
    return hashlib.sha256(canonical([int(token) for token in tokens])).hexdigest()


def row_digests(rows: Iterable[Mapping[str, Any]], start: str = "") -> Iterator[str]:
    """Yield, after each row, the digest of ``start`` (the header's digest) and of all rows so far."""
    digest = start
    for row in rows:
        measured = {name: value for name, value in row.items() if name not in _LATER_OF_ROW}
        digest = hashlib.sha256(digest.encode() + b"\n" + canonical(measured)).hexdigest()
        yield digest


class Line(NamedTuple):
    """A digest in a log. ``word`` is empty if the log was cut. ``id`` is empty in lines of older engines."""

    word: str
    digest: str = ""
    id: str = ""
    rows: int = 0


def lines_in(logs: Iterable[bytes]) -> Iterator[Line]:
    """Yield the digests in logs, in order, and an empty line where a log was cut."""
    for log in logs:
        for match in _LINE.finditer(log):
            part = {name: value.decode() for name, value in match.groupdict().items() if value is not None}
            if "header" in part:
                yield Line(REPORT, part["header"], part["header"][:ID_LENGTH])
            elif "rows" in part:
                yield Line(ROWS, part["rows"], part.get("rows_id", ""), int(part["count"]))
            elif "end" in part:
                yield Line(END, part["end"], part["end_id"])
            else:
                yield Line("")


class FileLine(NamedTuple):
    """A file that a job vouches for. Both fields are empty where a log was cut."""

    run: str = ""
    digest: str = ""


def files_in(logs: Iterable[bytes]) -> Iterator[FileLine]:
    """Yield the files that jobs vouch for in their logs, and an empty line where a log was cut."""
    for log in logs:
        for match in _FILE_LINE.finditer(log):
            run, digest = match["run"] or b"", match["digest"] or b""
            yield FileLine(run.decode(), digest.decode())
