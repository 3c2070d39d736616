"""The third set of falsehoods about real reports, put together: see the modules that it is made of."""

from __future__ import annotations

from tests.bridge.evidence import red_counts, red_rest, red_time
from tests.bridge.evidence.falsehoods import Case, Report, restated, with_pauses

RED: dict[str, Case] = {
    **red_time.TIME,
    **red_time.BASELINES,
    **red_counts.ROUNDS,
    **red_counts.BYTES,
    **red_counts.TEXT,
    **red_rest.QUALITY,
    **red_rest.IDENTITY,
    **red_rest.SERVE,
}


# What no law can show, with the reason. docs/evidence.md says what binds a report to its run instead.
BEYOND: dict[str, str] = {
    "12% of the lookup's decoding booked as prefill": "within the bound of prefills",
    "decoding of both plain arms booked as prefill": "reading may take as long as decoding as many tokens",
    "a run by a clock that is a tenth faster": "a busy machine pauses as long between rows",
    "both baselines slowed by a quarter": "our own loop may be 1.4 times as fast on a small model",
    "the baseline slower than the check by a sixth": "a baseline may be a tenth slower",
    "the baseline of a native report made faster": "mlx-lm may be three times as fast as one wait per token",
    "the baseline's times given to the candidate": "both are as fast",
    "the baseline with another prompt's times": "both prompts take as long",
    "the best prefill for every candidate": "within the bound of prefills",
    "no worst prompt claimed": "a claim that is not made says nothing",
    "an adaptive drafter that is right in every block": "only the run knows its rounds",
    "rounds of the adaptive drafter merged by two": "only the run knows its rounds",
    "fewer drafts proposed by the adaptive drafter": "only the run knows its rounds",
    "rounds of the drafter merged where its time is claimed": "only the draft model knows what it drafted",
    "learned codes of fewer values": "only the trained model knows its width",
    "the raw cache's peak twice as high": "no claim is about peaks",
    "one token changed in every answer, with its text": "only the model knows its answers",
    "errors of logits that are all the same": "logits of half precision differ by few numbers",
    "every cache diverges half as much": "tokens change by chance, too few to tell",
    "no token changed": "tokens change by chance, too few to tell",
    "stock decoding by an unnamed mlx-lm": "older engines named fewer libraries",
    "a third of the changed tokens": "few tokens change, so chance is large",
    "a lower perplexity of every cache": "only the model knows its perplexity",
    "half of the perplexity of every cache": "only the model knows its perplexity",
    "a perplexity below that of the raw cache": "codes may lower it by chance",
    "a graphics processor under Linux with a processor's chip": "Linux names the processor alone",
    "an affine cache that errs half more, on a model of our own": "large channels change the errors of affine codes",
    "affine codes err a fifth more on outliers": "errors on outliers depend on the seed",
    "lattices err a quarter more on heavy tails": "within chance, for so few vectors",
    "Voronoi codes err a tenth less on Gaussian vectors": "within chance, for so few vectors",
    "another seed of vectors": "efforts differ by less than chance",
    "drafts accepted beyond the rounds": "only the run knows its rounds",
    "one round for every answer": "only the run knows its rounds",
    "drafts and caches without several clients": "a smaller matrix, told",
    "no warm cells": "a smaller matrix, told",
    "every answer stopped by itself": "only the model knows its answers",
    "every answer stopped for its length": "only the model knows its answers",
    "all questions answered alike": "a small model may answer so",
    "a fallback that is not told": "one draft is proposed, and a law asks for one",
}


def told(case: Case) -> Report:
    """The report of a case: claims are taken from its rows, and nudged if the case says so."""
    made = with_pauses(case.base)
    case.edit(made)
    by, names = made.pop("nudge", (1.0, ()))
    share = made.pop("narrower", 1.0)
    made = restated(made)
    for claim in made["claims"]:
        if share != 1.0 and claim.get("interval"):
            claim["interval"] = [claim["value"] + share * (end - claim["value"]) for end in claim["interval"]]
    for claim in made["claims"]:
        if claim["name"] in names:
            claim["value"] *= by
    return made
