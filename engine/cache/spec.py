"""Cache specs for the engine: ``bridge.reports.cache_spec``, with the engine's error."""

from bridge.common.errors import UsageError
from bridge.reports import cache_spec
from bridge.reports.cache_spec import CacheSpec
from engine.errors import BadInput


def parse(text: str) -> CacheSpec:
    """Parse a spec.

    Raises:
        BadInput: there is no such spec, or it cannot store keys or values alone.
    """
    try:
        return cache_spec.parse(text)
    except UsageError as error:
        raise BadInput(error.message, error.fix or "") from error
