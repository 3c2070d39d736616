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
        "NO_REPORT", "the preset promises a report and the run left none of that kind", "let the job write it"
    ),
    _missing(
        "JUDGED_TOO_LONG",
        "judging it takes longer than it may",
        "measure less in one report, or split it",
    ),
    _wrong("UNREADABLE", "it is not one JSON object with one meaning", "write it with kakeya-engine"),
    _wrong(
        "UNKNOWN_KIND",
        "no rule knows reports of that kind",
        "write one of the kinds that docs/evidence.md lists",
    ),
    _wrong(
        "WRONG_KIND", "the preset names another kind of report", "ask for the preset that makes this report"
    ),
    _wrong(
        "UNKNOWN_SCHEMA",
        "no rule knows that version of the format",
        "measure again with this version's engine",
    ),
    _wrong(
        "LEGACY_SCHEMA",
        "reports of the first version were never checked",
        "measure again with this version's engine",
    ),
    _missing(
        "MALFORMED",
        "a field is missing, of another type, or no number that was measured",
        "write it as bridge/schemas/report-3.json says",
    ),
    _wrong(
        "STRAY_FIELD",
        "a figure outside of rows and claims cannot be checked",
        "make it a claim, or leave it out",
    ),
    _missing("NO_ROWS", "the report holds no measurement", "put every measurement into rows"),
    _missing(
        "BAD_ROW",
        "a row lacks a figure, or what stands there is none",
        "write rows as bridge/schemas/report-3.json says",
    ),
    _missing(
        "PROVENANCE_MISSING",
        "who measured, on what, with which code, weights and options is not said",
        "name host, chip, system, versions, code, weights, tokenizer and every option",
    ),
    _wrong(
        "DANGLING_NAME",
        "a row, prompt, arm or claim names something that the report does not describe",
        "describe each arm, prompt and workload once, by its name",
    ),
    # Rows
    _wrong(
        "ROW_CONTRADICTS",
        "a row's figures cannot all be true",
        "count tokens, rounds and seconds where they happen",
    ),
    _wrong(
        "ROW_REPEATED",
        "the same measurement stands there twice: one run counts as several",
        "run each repeat, and write the clock's seconds unrounded",
    ),
    _wrong(
        "ROWS_SET_ASIDE",
        "more than two runs of an arm on a prompt are called warm-up: the others may have been chosen",
        "let every run count but the first, and one that is profiled",
    ),
    # Prompts and what came out
    _wrong(
        "PROMPT_REPEATED",
        "one text stands there under several names: one prompt counts as several",
        "ask each prompt once, and repeat the run instead",
    ),
    _missing(
        "PROMPT_UNRECORDED",
        "what was asked is not recorded",
        "record each prompt's text, or head and tail of a long one",
    ),
    _wrong(
        "PROMPT_MISSTATED",
        "a prompt is not as long as it is said to be, or what it hides stands elsewhere",
        "count the tokens that the model was given, and say where the needle stands",
    ),
    _wrong(
        "PROMPT_DIGEST", "the digest is not that of the text", "hash the text that was given to the tokenizer"
    ),
    _wrong(
        "PROMPT_CONTAMINATED",
        "an undeclared text stands in all prompts, or unlike tasks end alike: a modifier changes what is measured",
        "declare what all prompts of a workload share, and give each task its own",
    ),
    _wrong(
        "OUTPUT_DEGENERATE",
        "the text ends in one unit over and over, which the oracle's does not: it is corrupted",
        "mend the cache; compare the tokens with plain decoding",
    ),
    _wrong(
        "WORKLOAD_DEGENERATE",
        "most of what is decoded repeats itself: guessing that is no merit",
        "choose prompts that the model has something to say to, or stop earlier",
    ),
    # Identity with plain decoding
    _missing(
        "ORACLE_MISSING",
        "nothing shows what plain decoding would have put out",
        "name an oracle for the arm and run it on the same prompts",
    ),
    _wrong(
        "OUTPUT_DIVERGES",
        "greedy tokens are not the oracle's, and no near tie of its logits explains where they part",
        "mend the loop, or record the oracle's two best logits there",
    ),
    _wrong(
        "NOT_GREEDY",
        "with a temperature nothing shows that the output is the target's",
        "claim speed at temperature 0",
    ),
    _wrong(
        "ORACLE_UNFIT",
        "the oracle drafts itself, is no stock loop, or keeps another cache: repeating it shows nothing",
        "name plain decoding over the same cache",
    ),
    # Speed
    _wrong(
        "SPEEDUP_SELF_COMPARISON",
        "an arm is compared with itself: the quotient is the order of the runs",
        "compare with another arm",
    ),
    _wrong("SPEEDUP_SAMPLES", "fewer than 5 rows in an arm", "measure more prompts or repeats"),
    _wrong(
        "SINGLE_PROMPT",
        "one prompt stands for a workload",
        "measure several, or restrict the claim to that prompt",
    ),
    _missing(
        "CHERRY_PICKED",
        "a figure of some prompts stands without that of all",
        "claim it of all prompts too",
    ),
    _wrong(
        "SINGLE_RUN",
        "fewer than 3 repeats: nothing shows how far the clock wanders",
        "repeat each prompt at least 3 times",
    ),
    _wrong(
        "SPEEDUP_DECODE_TOKENS",
        "a median below 32 decoded tokens: nearly all of the time is prefill",
        "decode at least 32 tokens",
    ),
    _wrong(
        "SPEEDUP_IMPOSSIBLE",
        "an arm is faster than its tokens a round allow: each round takes a forward pass",
        "count every round, and time all of them",
    ),
    _missing(
        "SPEEDUP_DECODE_ONLY_MISSING",
        "a quotient that includes prefill stands alone",
        "claim decode_speedup beside it",
    ),
    _wrong(
        "SPEEDUP_SCOPE_MISMATCH",
        "the arms were not measured on the same work",
        "run both arms on the same prompts, equally often, over the same span",
    ),
    _wrong(
        "SPEEDUP_ORACLE_LOOP",
        "the other arm is no stock baseline",
        "compare with mlx_lm.generate_step, or claim decode_ratio",
    ),
    _noise(
        "SPEEDUP_PREFILL_VARIANCE",
        "identical prefill differs more than 3 times within an arm: the machine had other work to do",
    ),
    _noise(
        "DECODE_SPREAD",
        "identical decoding differs more than 2 times within an arm: the machine had other work to do",
    ),
    _noise(
        "TIMES_UNCLEAR",
        "times contradict one another, and the repeats wander as far: the machine had other work to do",
    ),
    _wrong(
        "NOT_INTERLEAVED",
        "the arms did not take turns: what the machine did meanwhile is in the quotient",
        "alternate the arms, one prompt and repeat at a time",
    ),
    _wrong(
        "PATCHED_ORACLE",
        "the baseline ran in a changed library",
        "run the baseline on mlx-lm as it was installed",
    ),
    _wrong(
        "SLOW_ORACLE",
        "the baseline is slower than one forward pass a token, or than another stock loop",
        "compare with the strongest stock loop",
    ),
    _missing(
        "ORACLE_UNCHECKED",
        "nothing shows that the baseline is not held back",
        "add an arm verify1: one forward pass a token",
    ),
    _missing(
        "LIVENESS_MISSING",
        "no counter shows that the arm did what its name says",
        "count rounds, drafts and injected positions in every row",
    ),
    _wrong(
        "FUSED_NEVER_RAN",
        "the arm drafted nothing: it fell back to plain decoding",
        "find out why the drafter was not used",
    ),
    _wrong(
        "BASELINE_AS_SUT",
        "nothing but baselines ran",
        "run a candidate, or write a report of kind kakeya.native",
    ),
    _wrong(
        "TIME_HIDDEN",
        "more than a tenth of the time is neither prefill nor decoding",
        "count in decode_s all that happens between the first token and the last",
    ),
    # Memory and rates
    _wrong(
        "MEMORY_NOT_LIVE",
        "bytes are a formula's, not those of arrays that were alive",
        "count the cache's arrays after the last token",
    ),
    _wrong(
        "MEMORY_CLAIM_MISMATCH",
        "the bytes are not those of the arrays that are listed",
        "list every array of every layer with its shape and type",
    ),
    _wrong("RATE_OMITS_SIDE_INFORMATION", "scales and biases are stored too", "count every stored byte"),
    _wrong(
        "RATE_IMPOSSIBLE",
        "no code stores a Gaussian source at R bits with less error than 2^-2R",
        "look for a mistake in the rate or in the error",
    ),
    _wrong(
        "SPREAD_IMPOSSIBLE",
        "errors that are never negative cannot spread further than that",
        "take the standard error of the mean",
    ),
    _wrong("LIMIT_WRONG", "the limit at R bits is 2^-2R", "compute it from the stored bits"),
    _wrong(
        "EQUAL_Q_NOT_EQUAL_RATE",
        "codecs are compared at unequal stored bits",
        "compare at equal stored bits (0.05 of a bit)",
    ),
    # Recall and injection
    _wrong(
        "RECALL_VACUOUS",
        "the answer is empty, given away by the question, or the same for all prompts",
        "ask for an answer that stands in the prompt alone",
    ),
    _wrong(
        "RECALL_SCOPE",
        "the claim is wider than what was measured",
        "measure the arm on every prompt of the claim, or restrict it",
    ),
    _missing(
        "INTERVAL_MISSING",
        "a share of few prompts, or a quotient of times, says little without its interval",
        "give the exact 95 % interval of a share; of a quotient, the least and the greatest prompt",
    ),
    _missing(
        "POISON_MISSING",
        "without noise in the same place nothing shows that the place is read",
        "add an arm poison",
    ),
    _wrong(
        "POISON_SURVIVES",
        "needles are found with noise in place of keys and values: they are not read",
        "find out what the attention reads",
    ),
    _missing(
        "IDENTITY_MISSING", "nothing shows that the machinery alone changes nothing", "add an arm identity"
    ),
    _wrong(
        "IDENTITY_BROKEN",
        "the machinery changes the output though it puts back what was there",
        "mend the injection",
    ),
    _missing("EVICTED_MISSING", "nothing shows that the model cannot do without", "add an arm evicted"),
    _wrong(
        "EVICTED_SURVIVES",
        "needles are found with nothing put back: the test shows nothing",
        "use a model that cannot recall without it",
    ),
    _wrong(
        "INJECTION_NEVER_RAN",
        "the arm put nothing in place, or less than half of what the poison did",
        "find out why, and count where attention reads",
    ),
    # Claims
    _wrong(
        "UNNAMED_CLAIM",
        "no statistic of that name is known for this kind of report",
        "use a name of docs/evidence.md",
    ),
    _missing(
        "CLAIM_INCOMPLETE",
        "the claim does not say of which arms or rows it is",
        "name arm, against and where",
    ),
    _wrong(
        "CLAIM_NOT_FROM_ROWS",
        "the rows give another figure",
        "compute it from the rows as docs/evidence.md says",
    ),
    # Laws of a run
    _wrong(
        "TIME_MISPLACED",
        "one prompt was read in unlike times by two arms: what leaves decoding stands in prefill",
        "take the time from the first token to the last as decode_s, in every arm",
    ),
    _wrong(
        "TIME_UNACCOUNTED",
        "the rows do not take most of the run's seconds: times were made smaller, or rows left out",
        "report every row with the clock's own seconds",
    ),
    _wrong(
        "CLOCK_IMPLAUSIBLE",
        "times are rounded, copied or in no order: no clock gave them",
        "write what the clock said, unrounded, of every run",
    ),
    _wrong(
        "RUNS_MISNUMBERED",
        "repeats are not those that were configured, in their order: runs were chosen",
        "report every repeat, in the order in which they ran, warm-up first",
    ),
    _wrong(
        "ROUNDS_CONTRADICT",
        "no draft-verify loop commits, proposes and counts so",
        "count rounds where they happen",
    ),
    _wrong(
        "NOT_COVERED",
        "what is configured or claimed was not measured on all of it: what is missing may have been chosen",
        "measure all of it, or configure less",
    ),
    _wrong(
        "BASELINE_UNSTEADY",
        "plain greedy decoding gives unlike tokens for one prompt",
        "find out what the baseline does",
    ),
    _wrong(
        "BYTES_IMPOSSIBLE",
        "the arrays are not those of that model, that cache and as many positions",
        "list the live arrays of every layer",
    ),
    _wrong(
        "TEXT_CONTRADICTS",
        "tokens, text and stop do not belong to one another",
        "write the text of exactly the tokens that were put out",
    ),
    _wrong(
        "QUALITY_IMPOSSIBLE",
        "errors, divergences and tokens are not those of one cache, or of that codec",
        "look for a mistake in the sums",
    ),
    _wrong(
        "IDENTITY_DOUBTFUL",
        "models, machine or prompts are not what they are called",
        "let the engine write identity, models and prompts",
    ),
    _wrong(
        "MEANING_UNKNOWN",
        "a word that decides how figures are read is of no closed list",
        "write the names and definitions of this version's engine",
    ),
    # The run
    _wrong(
        "RUN_UNBOUND",
        "the report is not of this job: of another run, another time or another machine, or of other rows",
        "let the job measure, and leave no report in the request's tree",
    ),
    _missing(
        "RUN_UNTOLD",
        "nothing shows that the report is of this job: the request's own code could have brought it along",
        "write the report with an engine that knows KAKEYA_RUN_ID",
    ),
    # Reports of schema 2
    _missing("MISSING_STAGE_TIMINGS", "which path ran must be said for each sample", "write stage_timings"),
    _missing(
        "MISSING_RESTORATION_FLAG",
        "a sample that does not say restoration_active is unknown",
        "write the flag in each row",
    ),
    _wrong("MIXED_RESTORATION_PATHS", "one report is about one system", "write one report for each"),
    _wrong(
        "BASELINE_RECALL_CLAIM",
        "nothing was restored: the recall is the oracle's by construction",
        "claim recall_native_baseline",
    ),
)

TABLE = {entry.code: entry for entry in _ENTRIES}
