"""How property tests draw their examples: the same ones each time, or others with `EXPLORE`.

A test that fails by chance stops whoever happens to run it, with a change that has nothing to do with it. So the tests
draw the same examples everywhere; `EXPLORE=5 make test` draws five times as many, from a new seed each time. What it
finds becomes an `@example`, or a test of its own.
"""

import os

from hypothesis import HealthCheck, settings

# Set to a number: how many times as many examples are drawn, at random.
VARIABLE = "EXPLORE"
FACTOR = int(os.environ.get(VARIABLE) or 0)
# What hypothesis draws where a test says nothing.
USUAL = 100

# The machine may be busy with other tests: no time is too long, and none for drawing either.
PATIENT = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("same", derandomize=True, max_examples=USUAL, **PATIENT)
settings.register_profile(
    "explore", derandomize=False, max_examples=USUAL * max(FACTOR, 1), print_blob=True, **PATIENT
)


def load_profile() -> None:
    """Choose for all tests; to be called before their modules are imported."""
    settings.load_profile("explore" if FACTOR else "same")


def examples(number: int) -> settings:
    """Return the settings of a test for which fewer or more examples than usual are drawn."""
    return settings(max_examples=number * max(FACTOR, 1))
