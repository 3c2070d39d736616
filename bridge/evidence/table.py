"""The one table of everything that the gate can say of a report: why it matters, and what would mend it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Entry:
    """One thing that can be wrong.

    `missing`: something is not there. `noise`: a machine that has other work to do does that to an honest run. Of
    anything else, what is there does not hold.
    """

    code: str
    why: str
    mend: str
    missing: bool = False
    noise: bool = False

    @property
    def verdict(self) -> Literal["REJECTED", "INCOMPLETE"]:
        """What a report comes to of which nothing else is said."""
        return "INCOMPLETE" if self.missing or self.noise else "REJECTED"


def _wrong(code: str, why: str, mend: str) -> Entry:
    return Entry(code, why, mend)


def _missing(code: str, why: str, mend: str) -> Entry:
    return Entry(code, why, mend, missing=True)


def _noise(code: str, why: str, mend: str = "measure again when the machine is idle") -> Entry:
    return Entry(code, why, mend, noise=True)


_ENTRIES = (
    # Reports as such
    _missing(
        "NO_REPORT",
        "the run left no report of a kind that the preset promises",
        "write a report of that kind in the job",
    ),
    _missing(
        "JUDGED_TOO_LONG",
        "judging the report exceeds the time limit",
        "measure less in one report, or split it",
    ),
    _wrong(
        "UNREADABLE",
        "the file is not one JSON object with one meaning",
        "write the report with kakeya-engine",
    ),
    _wrong(
        "UNKNOWN_KIND",
        "the gate has no rules for this kind of report",
        "write one of the kinds that docs/evidence.md lists",
    ),
    _wrong(
        "WRONG_KIND",
        "the preset promises another kind of report",
        "use the preset that makes this kind of report",
    ),
    _wrong(
        "UNKNOWN_SCHEMA",
        "the gate does not know this version of the format",
        "measure again with this version of the engine",
    ),
    _wrong(
        "LEGACY_SCHEMA",
        "reports of the first version were never checked",
        "measure again with this version of the engine",
    ),
    _missing(
        "MALFORMED",
        "a field is missing, or has another type or an impossible value",
        "write the report as bridge/schemas/report-3.json says",
    ),
    _wrong(
        "STRAY_FIELD",
        "the gate does not know the field, so nothing checks what it says",
        "make it a claim, or remove it",
    ),
    _missing("NO_ROWS", "the report holds no measurement", "write every measurement as a row"),
    _missing(
        "BAD_ROW",
        "a row lacks a figure, or holds one that cannot be measured",
        "write rows as bridge/schemas/report-3.json says",
    ),
    _missing(
        "PROVENANCE_MISSING",
        "the report does not fully name its machine, code, models and options",
        "name host, chip, system, versions, code, weights, tokenizer and every option",
    ),
    _wrong(
        "DANGLING_NAME",
        "a row, prompt, arm or claim uses a name that the report does not describe exactly once",
        "describe each arm, prompt and workload once",
    ),
    # Rows
    _wrong(
        "ROW_CONTRADICTS",
        "the figures of a row cannot all be true",
        "count tokens, rounds and seconds where they happen",
    ),
    _wrong(
        "ROW_REPEATED",
        "one measurement appears twice, so one run counts as several",
        "run each repeat, and write seconds unrounded",
    ),
    _wrong(
        "ROWS_SET_ASIDE",
        "more than two runs of an arm on a prompt are marked as warm-up, so the counted ones may be a selection",
        "count every run except the first and a profiled one",
    ),
    # Prompts and what came out
    _wrong(
        "PROMPT_REPEATED",
        "one text appears under several names, so one prompt counts as several",
        "ask each prompt once, and repeat the run instead",
    ),
    _missing(
        "PROMPT_UNRECORDED",
        "the text of a prompt is not recorded",
        "record the text of each prompt, or head and tail of a long one",
    ),
    _wrong(
        "PROMPT_MISSTATED",
        "the length of a prompt or the place of its needle does not fit its text",
        "count the tokens that the model was given, and say where the needle is",
    ),
    _wrong(
        "PROMPT_DIGEST",
        "the digest of a prompt does not fit its text",
        "hash the text that was given to the tokenizer",
    ),
    _wrong(
        "PROMPT_CONTAMINATED",
        "prompts share undeclared text, or workloads of unlike tasks end alike, which changes what is measured",
        "declare what all prompts of a workload share, and give each task its own",
    ),
    _wrong(
        "OUTPUT_DEGENERATE",
        "the output repeats itself and the oracle's does not, so the cache is corrupted",
        "fix the cache, and compare the tokens with plain decoding",
    ),
    _wrong(
        "WORKLOAD_DEGENERATE",
        "most of the decoded text repeats itself, so guessing it proves nothing",
        "choose other prompts, or stop earlier",
    ),
    # Identity with plain decoding
    _missing(
        "ORACLE_MISSING",
        "the report does not show what plain decoding gives",
        "name an oracle for the arm and run it on the same prompts",
    ),
    _wrong(
        "OUTPUT_DIVERGES",
        "greedy tokens differ from the oracle's, and no near tie of its logits explains it",
        "fix the loop, or record the oracle's two best logits at the first difference",
    ),
    _wrong(
        "NOT_GREEDY",
        "at a temperature above 0, nothing shows that the output is the target's",
        "claim speed at temperature 0",
    ),
    _wrong(
        "ORACLE_UNFIT",
        "the oracle drafts, is not a stock loop, or uses another cache, so repeating it proves nothing",
        "name plain decoding over the same cache",
    ),
    # Speed
    _wrong(
        "SPEEDUP_SELF_COMPARISON",
        "an arm is compared with itself, so the quotient is noise",
        "compare with another arm",
    ),
    _wrong("SPEEDUP_SAMPLES", "an arm has fewer than 5 rows", "measure more prompts or repeats"),
    _wrong(
        "SINGLE_PROMPT",
        "one prompt stands for a workload",
        "measure several prompts, or restrict the claim to that prompt",
    ),
    _missing(
        "CHERRY_PICKED",
        "a figure is claimed for some prompts, and not for all",
        "claim it for all prompts too",
    ),
    _wrong(
        "SINGLE_RUN",
        "fewer than 3 repeats do not show how far times vary",
        "repeat each prompt at least 3 times",
    ),
    _wrong(
        "SPEEDUP_DECODE_TOKENS",
        "the median is below 32 decoded tokens, so nearly all of the time is prefill",
        "decode at least 32 tokens",
    ),
    _wrong(
        "SPEEDUP_IMPOSSIBLE",
        "an arm is faster than its tokens a round allow, and each round takes a forward pass",
        "count every round, and time all of them",
    ),
    _missing(
        "SPEEDUP_DECODE_ONLY_MISSING",
        "a quotient that includes prefill is claimed alone",
        "claim decode_speedup too",
    ),
    _wrong(
        "SPEEDUP_SCOPE_MISMATCH",
        "the arms were not measured on the same work",
        "run both arms on the same prompts, equally often, over the same stages",
    ),
    _wrong(
        "SPEEDUP_ORACLE_LOOP",
        "the arm that is compared with is not a stock baseline",
        "compare with mlx_lm.generate_step, or claim decode_ratio",
    ),
    _noise(
        "SPEEDUP_PREFILL_VARIANCE",
        "identical prefill differs by more than 3 times within an arm, so the machine was busy",
    ),
    _noise(
        "DECODE_SPREAD",
        "identical decoding differs by more than 2 times within an arm, so the machine was busy",
    ),
    _noise(
        "TIMES_UNCLEAR",
        "times contradict one another by no more than the repeats vary, so the machine was busy",
    ),
    _wrong(
        "NOT_INTERLEAVED",
        "the arms did not take turns, so the quotient includes what else the machine did",
        "alternate the arms, one prompt and repeat at a time",
    ),
    _wrong(
        "PATCHED_ORACLE",
        "the baseline ran in a modified library",
        "run the baseline on mlx-lm as it was installed",
    ),
    _wrong(
        "SLOW_ORACLE",
        "the baseline is slower than another plain loop",
        "compare with the strongest stock loop",
    ),
    _missing(
        "ORACLE_UNCHECKED",
        "the report does not show that the baseline is not slowed down",
        "add an arm verify1, with one forward pass a token",
    ),
    _missing(
        "LIVENESS_MISSING",
        "no counter shows that the arm did what its name says",
        "count rounds, drafts and injected positions in every row",
    ),
    _wrong(
        "FUSED_NEVER_RAN",
        "the arm drafted nothing and fell back to plain decoding",
        "find out why the drafter was not used",
    ),
    _wrong(
        "BASELINE_AS_SUT", "only baselines ran", "run a candidate, or write a report of kind kakeya.native"
    ),
    _wrong(
        "TIME_HIDDEN",
        "too much time is neither prefill nor decoding",
        "count everything between the first token and the last in decode_s",
    ),
    # Memory and rates
    _wrong(
        "MEMORY_NOT_LIVE",
        "bytes come from a formula, not from live arrays",
        "count the arrays of the cache after the last token",
    ),
    _wrong(
        "MEMORY_CLAIM_MISMATCH",
        "the bytes do not equal the sum of the listed arrays",
        "list every array of every layer with its shape and type",
    ),
    _wrong(
        "RATE_OMITS_SIDE_INFORMATION", "the stored bits leave out scales or biases", "count every stored byte"
    ),
    _wrong(
        "RATE_IMPOSSIBLE",
        "no code stores a Gaussian source at R bits with less error than 2^-2R",
        "look for a mistake in the rate or in the error",
    ),
    _wrong(
        "SPREAD_IMPOSSIBLE",
        "errors that are never negative cannot vary that much",
        "use the standard error of the mean",
    ),
    _wrong("LIMIT_WRONG", "the limit at R bits is 2^-2R", "compute the limit from the stored bits"),
    _wrong(
        "EQUAL_Q_NOT_EQUAL_RATE",
        "codecs are compared at different stored bits",
        "compare at equal stored bits (0.05 of a bit)",
    ),
    # Recall and injection
    _wrong(
        "RECALL_VACUOUS",
        "the answer is empty, given away by the question, or the same for all prompts",
        "ask for an answer that only the prompt holds",
    ),
    _wrong(
        "RECALL_SCOPE",
        "the claim covers more than was measured",
        "measure the arm on every prompt of the claim, or restrict it",
    ),
    _missing(
        "INTERVAL_MISSING",
        "a share of few prompts or a quotient of times says little without its interval",
        "give the exact 95 % interval of a share; for a quotient, the least and the greatest prompt",
    ),
    _missing(
        "POISON_MISSING",
        "without noise in the same place, nothing shows that the place is read",
        "add an arm poison",
    ),
    _wrong(
        "POISON_SURVIVES",
        "needles are found with noise in place of keys and values, so these are not read",
        "find out what the attention reads",
    ),
    _missing(
        "IDENTITY_MISSING", "nothing shows that the machinery alone changes nothing", "add an arm identity"
    ),
    _wrong(
        "IDENTITY_BROKEN",
        "the machinery changes the output even if it puts back what was there",
        "fix the injection",
    ),
    _missing(
        "EVICTED_MISSING",
        "nothing shows that the model cannot recall without what is put back",
        "add an arm evicted",
    ),
    _wrong(
        "EVICTED_SURVIVES",
        "needles are found if nothing is put back, so the test proves nothing",
        "use a model that cannot recall without it",
    ),
    _wrong(
        "INJECTION_NEVER_RAN",
        "the arm did not inject the positions that it had to",
        "find out why, and count where attention reads",
    ),
    # Claims
    _wrong(
        "UNNAMED_CLAIM",
        "the gate knows no statistic of that name for this kind of report",
        "use a name from docs/evidence.md",
    ),
    _missing(
        "CLAIM_INCOMPLETE",
        "the claim does not say which arms or rows it is about",
        "name arm, against and where",
    ),
    _wrong(
        "CLAIM_NOT_FROM_ROWS",
        "the rows give another figure",
        "compute the claim from the rows as docs/evidence.md says",
    ),
    # Laws of a run
    _wrong(
        "TIME_MISPLACED",
        "two arms take different times to read one prompt, so decode time is booked as prefill",
        "measure decode_s from the first token to the last, in every arm",
    ),
    _wrong(
        "TIME_UNACCOUNTED",
        "the rows do not cover the time of the run, so times were lowered or rows left out",
        "report every row with the unrounded seconds of the clock",
    ),
    _wrong(
        "CLOCK_IMPLAUSIBLE",
        "times are rounded, copied or out of order, as no clock gives them",
        "write what the clock said, unrounded, for every run",
    ),
    _wrong(
        "RUNS_MISNUMBERED",
        "repeats are not the configured ones in their order, so runs may have been selected",
        "report every repeat, in the order in which they ran, warm-up first",
    ),
    _wrong(
        "ROUNDS_CONTRADICT",
        "no draft-verify loop commits, proposes and counts like this",
        "count rounds where they happen",
    ),
    _wrong(
        "NOT_COVERED",
        "something that is configured or claimed was not measured, and may have been left out on purpose",
        "measure all of it, or configure less",
    ),
    _wrong(
        "BASELINE_UNSTEADY",
        "plain greedy decoding gives different tokens for one prompt",
        "find out why the baseline is not deterministic",
    ),
    _wrong(
        "BYTES_IMPOSSIBLE",
        "the arrays or counters do not fit the model, the cache and the number of positions",
        "list the live arrays of every layer, and count positions where they are stored",
    ),
    _wrong(
        "TEXT_CONTRADICTS",
        "tokens, text and stop reason do not fit together",
        "write the text of exactly the generated tokens",
    ),
    _wrong(
        "QUALITY_IMPOSSIBLE",
        "errors, divergences and tokens do not fit one cache, or that codec",
        "look for a mistake in the sums",
    ),
    _wrong(
        "IDENTITY_DOUBTFUL",
        "models, machine or prompts are not what their names say",
        "let the engine write identity, models and prompts",
    ),
    _wrong(
        "MEANING_UNKNOWN",
        "a word that decides how figures are read is not on the closed list",
        "use the names and definitions of this version of the engine",
    ),
    # The run
    _wrong(
        "RUN_UNBOUND",
        "the report is not of this job: it has another run, time, machine or option, or other rows",
        "let the job measure, and leave no report in the tree of the request",
    ),
    _missing(
        "RUN_UNTOLD",
        "nothing shows that the report belongs to this job; the request's code could have brought it along",
        "write the report with an engine that knows KAKEYA_RUN_ID",
    ),
    # Reports of schema 2
    _missing(
        "MISSING_STAGE_TIMINGS",
        "the report does not say for each sample which path ran",
        "write stage_timings",
    ),
    _missing(
        "MISSING_RESTORATION_FLAG",
        "a sample does not say whether it was restored",
        "write restoration_active in each row",
    ),
    _wrong(
        "MIXED_RESTORATION_PATHS",
        "some samples were restored and some were not",
        "write one report for each system",
    ),
    _wrong(
        "BASELINE_RECALL_CLAIM",
        "nothing was restored, so the recall is the oracle's by construction",
        "claim recall_native_baseline",
    ),
)

TABLE = {entry.code: entry for entry in _ENTRIES}
