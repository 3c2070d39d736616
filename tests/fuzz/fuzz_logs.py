"""Feed the log whatever atheris finds, cut anywhere: no secret, no terminal control and no command comes out."""

from __future__ import annotations

import re
import sys

import atheris

with atheris.instrument_imports(include=["runner.job.logs", "runner.job.redact"]):
    from runner.job.logs import LogSink

SECRET = "s3cr3t-T0ken/+="
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029]")
COMMAND = re.compile(r"(?m)^\s*::|##\[")


def one_input(data: bytes) -> None:
    """Write the input in pieces with the secret in one of them, also cut in two."""
    source = atheris.FuzzedDataProvider(data)
    limit = source.ConsumeIntInRange(30, 4000)
    at, cut = source.ConsumeIntInRange(0, 64), source.ConsumeIntInRange(0, len(SECRET))
    text = source.ConsumeBytes(4096)
    whole = text[:at] + SECRET.encode() + text[at:]
    sink = LogSink(limit, [SECRET])
    for piece in (whole[: at + cut], whole[at + cut :]):
        sink.write(piece)
    early = sink.stream.next_piece()
    sink.stream.mark_sent(early)
    sink.close()
    streamed = early.data + sink.stream.next_piece().data
    for out in (sink.kept.decode("utf-8", "replace"), streamed.decode("utf-8", "replace")):
        assert SECRET not in out, out
        assert not CONTROL.search(out), out
        assert not COMMAND.search(out), out


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
