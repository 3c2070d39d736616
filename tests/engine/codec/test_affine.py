import numpy as np
import pytest

from engine.codec.affine import AffineCodec
from engine.mx import mx


@pytest.mark.parametrize("bits", [3, 4, 8])
def test_values_beyond_half_precision_saturate(bits):
    x = mx.array(np.linspace(-2e5, 2e5, 128, dtype=np.float32)[None])
    out = AffineCodec(128, bits).decode(AffineCodec(128, bits).encode(x))
    assert mx.isfinite(out).all().item()
    assert 60_000 < mx.abs(out).max().item() < 70_000
