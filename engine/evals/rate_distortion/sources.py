"""Seeded data on which codecs are compared."""

import numpy as np

OUTLIER_CHANNELS = 2
OUTLIER_FACTOR = 20.0
DISTRIBUTIONS = ("gaussian", "t4", "outliers")


def draw(distribution: str, n_vectors: int, dim: int, seed: int) -> np.ndarray:
    """Return float32 ``[n_vectors, dim]``, every value one that half precision represents.

    Half precision is what an uncompressed cache holds, so it is where a codec's error is counted from.

    Args:
        distribution: ``gaussian`` (unit variance); ``t4`` (Student's t with 4 degrees of freedom, heavy
            tails); ``outliers`` (Gaussian with two channels times 20, as keys often look).
        n_vectors: rows.
        dim: values in a vector.
        seed: the same seed gives the same array on every machine.
    """
    rng = np.random.default_rng([seed, DISTRIBUTIONS.index(distribution)])
    shape = (n_vectors, dim)
    data = rng.standard_t(4, shape) if distribution == "t4" else rng.standard_normal(shape)
    if distribution == "outliers":
        channels = rng.choice(dim, OUTLIER_CHANNELS, replace=False)
        data[:, channels] *= OUTLIER_FACTOR
    return data.astype(np.float16).astype(np.float32)
