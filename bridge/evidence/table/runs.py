"""Violation codes for reports that contradict themselves or belong to another run."""

from __future__ import annotations

from bridge.evidence.table.entry import missing, wrong

ENTRIES = (
    # Laws of a run
    wrong(
        "TIME_MISPLACED",
        "two arms take different times to read one prompt, so decode time is booked as prefill",
        "measure decode_s from the first token to the last, in every arm",
    ),
    wrong(
        "TIME_UNACCOUNTED",
        "the rows do not cover the time of the run, so times were lowered or rows left out",
        "report every row with the unrounded seconds of the clock",
    ),
    wrong(
        "CLOCK_IMPLAUSIBLE",
        "times are rounded, copied or out of order, as no clock gives them",
        "write what the clock said, unrounded, for every run",
    ),
    wrong(
        "RUNS_MISNUMBERED",
        "repeats are not the configured ones in their order, so runs may have been selected",
        "report every repeat, in the order in which they ran, warm-up first",
    ),
    wrong(
        "ROUNDS_CONTRADICT",
        "no draft-verify loop commits, proposes and counts like this",
        "count rounds where they happen",
    ),
    wrong(
        "NOT_COVERED",
        "something that is configured or claimed was not measured, and may have been left out on purpose",
        "measure all of it, or configure less",
    ),
    wrong(
        "BASELINE_UNSTEADY",
        "plain greedy decoding gives different tokens for one prompt",
        "find out why the baseline is not deterministic",
    ),
    wrong(
        "BYTES_IMPOSSIBLE",
        "the arrays or counters do not fit the model, the cache and the number of positions",
        "list the live arrays of every layer, and count positions where they are stored",
    ),
    wrong(
        "TEXT_CONTRADICTS",
        "tokens, text and stop reason do not fit together",
        "write the text of exactly the generated tokens",
    ),
    wrong(
        "QUALITY_IMPOSSIBLE",
        "errors, divergences and tokens do not fit one cache, or that codec",
        "look for a mistake in the sums",
    ),
    wrong(
        "IDENTITY_DOUBTFUL",
        "models, machine or prompts are not what their names say",
        "let the engine write identity, models and prompts",
    ),
    wrong(
        "MEANING_UNKNOWN",
        "a word that decides how figures are read is not on the closed list",
        "use the names and definitions of this version of the engine",
    ),
    # The run
    wrong(
        "RUN_UNBOUND",
        "the report is not of this job: it has another run, time, machine or option, or other rows",
        "let the job measure, and leave no report in the tree of the request",
    ),
    missing(
        "RUN_UNTOLD",
        "nothing shows that the report belongs to this job; the request's code could have brought it along",
        "write the report with an engine that knows KAKEYA_RUN_ID",
    ),
    # Reports of schema 2
    missing(
        "MISSING_STAGE_TIMINGS",
        "the report does not say for each sample which path ran",
        "write stage_timings",
    ),
    missing(
        "MISSING_RESTORATION_FLAG",
        "a sample does not say whether it was restored",
        "write restoration_active in each row",
    ),
    wrong(
        "MIXED_RESTORATION_PATHS",
        "some samples were restored and some were not",
        "write one report for each system",
    ),
    wrong(
        "BASELINE_RECALL_CLAIM",
        "nothing was restored, so the recall is the oracle's by construction",
        "claim recall_native_baseline",
    ),
)
