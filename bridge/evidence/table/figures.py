"""Violation codes about a report's figures and claims."""

from __future__ import annotations

from bridge.evidence.table.entry import missing, noise, wrong

_OR_MORE = "measure again when the machine is idle, or with more repeats"

ENTRIES = (
    # Speed
    wrong(
        "SPEEDUP_SELF_COMPARISON",
        "an arm is compared with itself, so the quotient is noise",
        "compare with another arm",
    ),
    wrong("SPEEDUP_SAMPLES", "an arm has fewer than 5 rows", "measure more prompts or repeats"),
    wrong(
        "SINGLE_PROMPT",
        "one prompt stands for a workload",
        "measure several prompts, or restrict the claim to that prompt",
    ),
    missing(
        "CHERRY_PICKED",
        "a figure is claimed for some prompts or candidates, and not for all",
        "claim it for all prompts and candidates too",
    ),
    wrong(
        "SINGLE_RUN",
        "fewer than 3 repeats do not show how far times vary",
        "repeat each prompt at least 3 times",
    ),
    wrong(
        "SPEEDUP_DECODE_TOKENS",
        "the median is below 32 decoded tokens, so nearly all of the time is prefill",
        "decode at least 32 tokens",
    ),
    wrong(
        "SPEEDUP_IMPOSSIBLE",
        "an arm is faster than its tokens a round allow, and each round takes a forward pass",
        "count every round, and time all of them",
    ),
    missing(
        "SPEEDUP_DECODE_ONLY_MISSING",
        "a quotient that includes prefill is claimed alone",
        "claim decode_speedup too",
    ),
    wrong(
        "SPEEDUP_SCOPE_MISMATCH",
        "the arms were not measured on the same work",
        "run both arms on the same prompts, equally often, over the same stages",
    ),
    wrong(
        "SPEEDUP_ORACLE_LOOP",
        "the arm that is compared with is not a stock baseline",
        "compare with mlx_lm.generate_step, or claim decode_ratio",
    ),
    noise(
        "SPEEDUP_PREFILL_VARIANCE",
        "identical prefill differs by more than 3 times within an arm, so the machine was busy: all of fewer than 8 "
        "repeats, and of more those between which the median lies with a probability of 90 %",
        _OR_MORE,
    ),
    noise(
        "DECODE_SPREAD",
        "identical decoding differs by more than 2 times within an arm, so the machine was busy: all of fewer than 8 "
        "repeats, and of more those between which the median lies with a probability of 90 %",
        _OR_MORE,
    ),
    noise(
        "TIMES_UNCLEAR",
        "times contradict one another by no more than the repeats vary, so the machine was busy",
    ),
    wrong(
        "NOT_INTERLEAVED",
        "the arms did not take turns, so the quotient includes what else the machine did",
        "alternate the arms, one prompt and repeat at a time",
    ),
    wrong(
        "PATCHED_ORACLE",
        "the baseline ran in a modified library",
        "run the baseline on mlx-lm as it was installed",
    ),
    wrong(
        "SLOW_ORACLE",
        "the baseline is slower than another plain loop",
        "compare with the strongest stock loop",
    ),
    missing(
        "ORACLE_UNCHECKED",
        "the report does not show that the baseline is not slowed down",
        "add an arm verify1, with one forward pass a token",
    ),
    missing(
        "LIVENESS_MISSING",
        "no counter shows that the arm did what its name says",
        "count rounds, drafts and injected positions in every row",
    ),
    wrong(
        "FUSED_NEVER_RAN",
        "the arm drafted nothing and fell back to plain decoding",
        "find out why the drafter was not used",
    ),
    wrong(
        "BASELINE_AS_SUT", "only baselines ran", "run a candidate, or write a report of kind kakeya.native"
    ),
    wrong(
        "TIME_HIDDEN",
        "too much time is neither prefill nor decoding",
        "count everything between the first token and the last in decode_s",
    ),
    # Answers of the server
    wrong(
        "CELL_DIFFERS",
        "an answer differs from the one that a single client gets without drafts and kept prompts",
        "find out which combination of features changes tokens; none may, except at a recorded near tie",
    ),
    missing(
        "CELL_MISSING",
        "a combination of features was not measured",
        "ask every question of every configured combination",
    ),
    wrong(
        "FEATURE_NEVER_RAN",
        "no counter shows that a feature of the combination ran, or the server fell back",
        "find out why the server did without it",
    ),
    # Memory and rates
    wrong(
        "MEMORY_NOT_LIVE",
        "bytes come from a formula, not from live arrays",
        "count the arrays of the cache after the last token",
    ),
    wrong(
        "MEMORY_CLAIM_MISMATCH",
        "the bytes do not equal the sum of the listed arrays",
        "list every array of every layer with its shape and type",
    ),
    wrong(
        "RATE_OMITS_SIDE_INFORMATION", "the stored bits leave out scales or biases", "count every stored byte"
    ),
    wrong(
        "RATE_IMPOSSIBLE",
        "no code stores a Gaussian source at R bits with less error than 2^-2R",
        "look for a mistake in the rate or in the error",
    ),
    wrong(
        "SPREAD_IMPOSSIBLE",
        "errors that are never negative cannot vary that much",
        "use the standard error of the mean",
    ),
    wrong("LIMIT_WRONG", "the limit at R bits is 2^-2R", "compute the limit from the stored bits"),
    wrong(
        "EQUAL_Q_NOT_EQUAL_RATE",
        "codecs are compared at different stored bits",
        "compare at equal stored bits (0.05 of a bit)",
    ),
    # Recall and injection
    wrong(
        "RECALL_VACUOUS",
        "the answer is empty, given away by the question, or the same for all prompts",
        "ask for an answer that only the prompt holds",
    ),
    wrong(
        "RECALL_SCOPE",
        "the claim covers more than was measured",
        "measure the arm on every prompt of the claim, or restrict it",
    ),
    missing(
        "INTERVAL_MISSING",
        "a share of few prompts or a quotient of times says little without its interval",
        "give the exact 95 % interval of a share; for a quotient, the least and the greatest prompt",
    ),
    missing(
        "POISON_MISSING",
        "without noise in the same place, nothing shows that the place is read",
        "add an arm poison",
    ),
    wrong(
        "POISON_SURVIVES",
        "with noise in place of keys and values, needles are found or predictions hardly move, so these are not read",
        "find out what the attention reads",
    ),
    missing(
        "IDENTITY_MISSING", "nothing shows that the machinery alone changes nothing", "add an arm identity"
    ),
    wrong(
        "IDENTITY_BROKEN",
        "the machinery changes the output even if it puts back what was there",
        "fix the injection",
    ),
    missing(
        "EVICTED_MISSING",
        "nothing shows that the model cannot recall without what is put back",
        "add an arm evicted",
    ),
    wrong(
        "EVICTED_SURVIVES",
        "if nothing is put back, needles are found or predictions hardly move, so the test proves nothing",
        "use a model that cannot recall without it",
    ),
    wrong(
        "INJECTION_NEVER_RAN",
        "the arm did not inject the positions that it had to",
        "find out why, and count where attention reads",
    ),
    # Claims
    wrong(
        "UNNAMED_CLAIM",
        "the gate knows no statistic of that name for this kind of report",
        "use a name from docs/evidence.md",
    ),
    missing(
        "CLAIM_INCOMPLETE",
        "the claim does not say which arms or rows it is about",
        "name arm, against and where",
    ),
    wrong(
        "CLAIM_NOT_FROM_ROWS",
        "the rows give another figure",
        "compute the claim from the rows as docs/evidence.md says",
    ),
)
