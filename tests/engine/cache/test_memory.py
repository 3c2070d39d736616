"""What the caches take at their peaks, as `benchmarks/codec_memory.py` measures it."""

import pytest

from benchmarks import codec_memory
from engine.mx import mx

MIB = 2.0**20


@pytest.mark.long
@pytest.mark.skipif(
    mx.default_device() != mx.cpu, reason="raw attention on GPUs keeps no whole score matrices"
)
def test_a_packed_cache_peaks_below_a_raw_one_from_1024_tokens():
    args = codec_memory.parsed([])
    raw, packed = (
        [size / MIB for size in codec_memory.measure(codec_memory.CACHES[name], 1024, args)]
        for name in ("raw bf16", "e8v@4.25")
    )
    assert packed[0] < 0.27 * raw[0]
    assert packed[1] < raw[1]
    assert packed[2] < raw[2]
