"""A log of which only head and tail were kept is compared with what was streamed by its digest."""

import hashlib

import pytest

from bridge.bus.wire import LogDigest
from bridge.verify.plausibility import compare_logs


@pytest.mark.parametrize(
    ("streamed", "ok"), [(b"what the job printed", True), (b"what it never printed", False)]
)
def test_a_cut_log_agrees_with_the_stream_that_has_its_digest(streamed, ok):
    digest = hashlib.sha256(b"what the job printed").hexdigest()
    log = LogDigest(
        path=".mac-bridge/logs/step-0.log", stream_sha256=digest, stream_bytes=len(streamed), kept_bytes=4,
        truncated=True,
    )  # fmt: skip

    check = compare_logs([(0, streamed[:7]), (0, streamed[7:])], [log], lambda _: b"what")

    assert check is not None
    assert check.ok is ok
