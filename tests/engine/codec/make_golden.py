"""Write data/golden_classic.npz from the published package: ``python tests/engine/codec/make_golden.py``.

Needs the dependency group `parity`, which nothing else in the project does.
"""

from pathlib import Path

import kakeyalattice
import numpy as np
import torch

PATH = Path(__file__).parent / "data" / "golden_classic.npz"
CASES = [
    (lattice, dim, q) for lattice in ("e8", "d4") for dim in (64, 128, 256, 512) for q in (2, 10, 38, 152)
]


def vectors(dim: int) -> np.ndarray:
    """Gaussian, heavy-tailed, tiny, large and zero vectors, all exact in half precision."""
    rng = np.random.default_rng(20260424 + dim)
    rows = [rng.standard_normal(dim), rng.standard_t(4, dim), 1e-3 * rng.standard_normal(dim), np.zeros(dim)]
    rows.append(300 * rng.standard_normal(dim))
    return np.stack(rows).astype(np.float16)


def reference(lattice: str, dim: int, q: int, x: np.ndarray) -> np.ndarray:
    """Return the published round trip, float32."""
    name = {"e8": "V15KakeyaZamirE8GPU", "d4": "V14KakeyaZamirLatticeGPU"}[lattice]
    codec = getattr(kakeyalattice, name)(dim, q, device="cpu")
    return codec.roundtrip(torch.tensor(x.astype(np.float32))).numpy()


def main() -> None:
    """Write the file."""
    arrays = {f"x_{dim}": vectors(dim) for dim in (64, 128, 256, 512)}
    for lattice, dim, q in CASES:
        arrays[f"{lattice}_{dim}_{q}"] = reference(lattice, dim, q, arrays[f"x_{dim}"])
    PATH.parent.mkdir(exist_ok=True)
    np.savez_compressed(PATH, **arrays)


if __name__ == "__main__":
    main()
