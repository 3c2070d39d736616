"""The codecs and caches for transformers on torch. Nothing here imports MLX."""

try:
    from engine.torch.cache import DEFAULT, cache_bytes, kakeya_cache, packed_layers
except ImportError as error:
    from bridge.common import install
    from engine.errors import MissingPackage

    raise MissingPackage(f"torch and transformers cannot be loaded: {error}", install.torch()) from error

__all__ = ["DEFAULT", "cache_bytes", "kakeya_cache", "packed_layers"]
