"""The Hadamard rotation in NumPy, adding in the order that MLX's CPU backend adds."""

import numpy as np

# One integer a row, most significant bit first, 1 for +1 and 0 for -1: the matrices that MLX uses.
_ROWS = {
    12: "bff 2aa ec3 896 fb0 a25 cec 989 c3b 962 f0e a58",
    20: "84336 4238b 211d5 108fa 0866d 7c139 ba29c d914e e88a7 f0653 "
    "35a0f 1ad17 8d49b c685d 6343e 49a10 a0d08 54484 2e042 93021",
    28: "818694c 41c14a6 20e2a13 1071549 0838ae4 041e532 030d299 3d019d2 1e82ca9 8e43654 "
    "c621b2a e210d95 f00a6ca 7807325 5b3201e ac9900f 564c847 ab24463 d590271 6ac8178 "
    "b4640bc 66b70c0 b35b820 d8adc10 6d54e08 37a8704 9ad4382 cd6a181",
}
_ODD = {1: 1, 3: 12, 5: 20, 7: 28}


def matrix(m: int) -> np.ndarray:
    """Return ``H_m``, float32 ``[m, m]`` of +1 and -1."""
    if m == 1:
        return np.ones((1, 1), np.float32)
    rows = [[int(bit) for bit in f"{int(row, 16):0{m}b}"] for row in _ROWS[m].split()]
    return (2 * np.array(rows) - 1).astype(np.float32)


def rotate(x: np.ndarray) -> np.ndarray:
    """Return ``H x`` along the last axis, float32."""
    return _transform(x, transposed=False)


def unrotate(y: np.ndarray) -> np.ndarray:
    """Return ``H^T y`` along the last axis, float32."""
    return _transform(y, transposed=True)


def _transform(x: np.ndarray, *, transposed: bool) -> np.ndarray:
    dim = x.shape[-1]
    m = _ODD[dim // (dim & -dim)]
    h = matrix(m).T if transposed else matrix(m)
    parts: np.ndarray = x.astype(np.float32).reshape(-1, m, dim // m)
    half = 1
    while half < dim // m:  # Sylvester's butterflies
        pairs = parts.reshape(-1, m, dim // m // (2 * half), 2, half)
        first, second = pairs[..., 0, :], pairs[..., 1, :]
        parts = np.stack([first + second, first - second], axis=-2).reshape(-1, m, dim // m)
        half *= 2
    total: np.ndarray = np.zeros_like(parts)
    for column in range(m):
        total = total + h[None, :, column, None] * parts[:, None, column]
    return (total * np.float32(1 / np.sqrt(dim))).reshape(x.shape)
