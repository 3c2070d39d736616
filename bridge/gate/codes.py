"""The table of violation codes: why each matters, what to change, and what it does to the verdict."""

from dataclasses import dataclass
from typing import Literal

Effect = Literal["REJECTED", "INCOMPLETE", "NOTE"]


@dataclass(frozen=True)
class Code:
    """One violation code."""

    code: str  # the name in verdicts
    # `REJECTED`: the experiment or the report is wrong. `INCOMPLETE`: something is missing or too uneven to judge.
    # `NOTE`: a finding that a reader should know; the report can still be accepted.
    effect: Effect
    why: str
    fix: str


_ENGINE = "write the report with kakeya-engine"
_AGAIN = "measure again on an idle machine, or with more repeats (--max-repeats; bench verify-l: --repeats)"

CODES = {
    entry.code: entry
    for entry in (
        # The file
        Code("UNREADABLE", "REJECTED", "the file is not one JSON object with one meaning", _ENGINE),
        Code(
            "TOO_LARGE", "INCOMPLETE", "the file is too large to be judged",
            "measure fewer prompts, arms or repeats in one report",
        ),
        Code(
            "JUDGED_TOO_LONG", "INCOMPLETE", "judging the reports exceeds their time limit together",
            "measure less in one job",
        ),
        Code(
            "NO_REPORT", "INCOMPLETE", "the run left no report of a kind that the preset promises",
            "write a report of that kind in the job",
        ),
        Code(
            "LEFT_OUT", "INCOMPLETE", "a report of the run was not collected, so nobody can judge it",
            "write smaller reports, as plain files with plain names",
        ),
        Code(
            "UNKNOWN_KIND", "REJECTED", "the gate has no checks for this kind of report",
            "write one of the kinds that docs/evidence.md lists",
        ),
        Code(
            "KIND_NOT_DECLARED", "INCOMPLETE", "the preset does not say what a report of this kind must hold",
            "declare the kind under `reports` in the preset, as docs/presets.md shows",
        ),
        Code(
            "WRONG_KIND", "REJECTED", "the preset promises another kind of report",
            "use the preset that makes this kind of report",
        ),
        Code(
            "OTHER_VERSION", "INCOMPLETE", "this version of the gate cannot judge that version of the format",
            "measure again with this version of the engine, or judge with the version that wrote it",
        ),
        Code("MALFORMED", "INCOMPLETE", "a field is missing, or has another type or an impossible value", _ENGINE),
        Code("NO_ROWS", "INCOMPLETE", "the report holds no measurement", "write every measurement as a row"),
        Code("BAD_ROW", "INCOMPLETE", "a row lacks a figure, or holds one that cannot be measured", _ENGINE),
        Code(
            "PROVENANCE_MISSING", "INCOMPLETE", "the report does not fully name its machine, code, models and options",
            "name host, chip, system, versions, code, weights, tokenizer and every option",
        ),
        # The run
        Code(
            "NO_RUN", "INCOMPLETE",
            "no run vouches for this file: it can be trusted as far as whoever passed it on",
            "measure it through a runner, which signs what it saw: kakeya measure PRESET --out DIR",
        ),
        Code(
            "OTHER_SIGNER", "INCOMPLETE", "the run was signed with a key that is not pinned here",
            "pin the runner's key if you trust it: kakeya gate --key FILE, or as for kakeya verify",
        ),
        Code(
            "BAD_RUN", "REJECTED", "the run file does not hold what its signature covers",
            "fetch the run again; do not edit it",
        ),
        Code(
            "NOT_THIS_RUN", "REJECTED", "the report is not the one that this run measured",
            "let the job measure, and leave no report in the tree of the request",
        ),
        Code(
            "EDITED", "REJECTED", "the file differs from what the run wrote",
            "restore the file that the run wrote; do not edit, reformat or merge reports",
        ),
        Code(
            "OTHER_TIME", "INCOMPLETE", "the report was written at another time than the job ran",
            "keep the machine awake and its clock steady, and measure again",
        ),
        Code(
            "RUN_UNNAMED", "INCOMPLETE", "nothing shows that the report was measured in this job",
            "write the report with an engine that knows KAKEYA_RUN_ID",
        ),
        # Codes about kinds of report that a preset declares
        Code(
            "SCHEMA_MISMATCH", "REJECTED", "the report does not fit the JSON Schema that the preset declares",
            "write what the schema says, or correct the schema in the preset",
        ),
        Code(
            "CLAIM_MISSING", "INCOMPLETE", "the report lacks a claim that the preset declares, or its samples",
            "write the value and its samples at the places that the preset names",
        ),
        Code(
            "NOT_A_NUMBER", "REJECTED", "a claim or a sample is not a number with which one can calculate",
            "write finite JSON numbers, without quotes",
        ),
        Code(
            "TOO_FEW_SAMPLES", "INCOMPLETE", "there are fewer samples than the preset asks for",
            "measure more often, or lower min_samples in the preset",
        ),
        Code(
            "RATIO_BY_ZERO", "REJECTED", "a ratio to an arm whose median is 0 has no value",
            "measure the other arm with a finer clock or more work",
        ),
        Code(
            "CLAIM_NOT_FROM_SAMPLES", "REJECTED", "the samples give another value than the report claims",
            "compute the value from the samples in the report, and write all its digits",
        ),
        Code(
            "CHECKED", "NOTE", "these checks were applied to a report whose kind the preset declares, and no others",
            "read them before you quote a figure",
        ),
        # Form
        Code(
            "WRONG_MODEL", "REJECTED", "the measured model is not the requested one",
            "name the intended model with --model, or in the host's settings",
        ),
        Code(
            "DANGLING_NAME", "REJECTED", "a name is used that the report does not describe exactly once",
            "describe each arm, prompt and workload once",
        ),
        Code(
            "ROW_CONTRADICTS", "REJECTED", "the figures of a row cannot all be true",
            "count tokens, rounds and bytes where they happen",
        ),
        Code(
            "ROW_REPEATED", "REJECTED", "one measurement appears twice, so one run counts as several",
            "write each run once",
        ),
        Code(
            "CLAIM_NOT_FROM_ROWS", "REJECTED", "the rows give another figure, or allow no such claim",
            "let kakeya-engine derive the claims",
        ),
        # Samples
        Code(
            "NOT_COVERED", "INCOMPLETE", "something that is configured was not measured",
            "measure all of it, or configure less",
        ),
        Code(
            "ROWS_SET_ASIDE", "REJECTED", "many runs are marked as warm-up, so the counted ones may be a selection",
            "count every run except the first and a profiled one",
        ),
        Code(
            "PROMPT_REPEATED", "INCOMPLETE", "one text appears under several names, so one prompt counts as several",
            "ask each prompt once, and repeat the run instead",
        ),
        Code(
            "NOTHING_CLAIMED", "NOTE", "too little was measured for a claim about time",
            "measure more, with the option that the message names",
        ),
        Code(
            "COLD_START", "NOTE", "the first run of a process is slower than those after it",
            "leave a first run of each arm uncounted",
        ),
        Code(
            "ANSWERS_CUT", "NOTE", "an answer that was cut off may have been about to be right",
            "let answers go on longer (--max-tokens)",
        ),
        # Times
        Code(
            "TIMES_CONTRADICT", "REJECTED", "the times of the rows contradict each other",
            "write the measured times of every run, in the order in which they ran",
        ),
        Code(
            "TIME_HIDDEN", "REJECTED", "time that is neither prefill nor decoding makes decoding look faster",
            "count everything between the first token and the last in decode_s",
        ),
        Code(
            "NOT_INTERLEAVED", "REJECTED", "the arms did not take turns, so the ratio includes other work",
            "alternate the arms, one prompt and repeat at a time",
        ),
        Code("PREFILL_SPREAD", "INCOMPLETE", "equal prefills take very different times: the machine was busy", _AGAIN),
        Code("DECODE_SPREAD", "INCOMPLETE", "equal runs take very different times: the machine was busy", _AGAIN),
        Code(
            "LOW_POWER", "NOTE", "on battery or in low-power mode, a machine is slower than it can be",
            "plug the machine in, and turn low-power mode off",
        ),
        # Baselines
        Code(
            "BASELINE_MISSING", "INCOMPLETE", "nothing shows what plain decoding gives", "measure a baseline beside it"
        ),
        Code(
            "BASELINE_NOT_STOCK", "REJECTED", "the baseline is not plain mlx-lm",
            "decode the baseline with mlx-lm's own loop",
        ),
        Code(
            "BASELINE_PATCHED", "REJECTED", "the baseline ran in a changed library",
            "reinstall mlx-lm, and run the baseline on it unchanged",
        ),
        Code(
            "BASELINE_UNSTEADY", "INCOMPLETE", "plain greedy decoding is not deterministic here",
            "find out why, or measure in float32",
        ),
        Code(
            "ONE_ROW_LOOP_MISSING", "INCOMPLETE", "nothing shows that the baseline is not slowed down",
            "add the arm verify1: it runs one forward pass for each token",
        ),
        Code(
            "SLOW_BASELINE", "NOTE", "a slow baseline makes every speed-up look larger",
            "read plain_speedup, which is over the faster plain loop; find out what slows the baseline",
        ),
        Code("SELF_COMPARISON", "REJECTED", "an arm is compared with itself: the ratio is noise", "compare others"),
        Code("CANDIDATE_MISSING", "INCOMPLETE", "only baselines and controls ran", "run a candidate"),
        Code("NOT_PLAIN", "REJECTED", "a report of plain decoding compares nothing else", "use bench spec instead"),
        Code(
            "NOT_GREEDY", "REJECTED", "at a temperature above 0, nothing shows that the output is the target's",
            "measure at temperature 0",
        ),
        # Outputs
        Code(
            "ORACLE_MISSING", "INCOMPLETE", "nothing shows that the tokens are those of plain decoding",
            "name an oracle for the arm and run it on the same prompts",
        ),
        Code(
            "ORACLE_UNFIT", "REJECTED", "the oracle is not plain decoding over the same cache",
            "name plain decoding over the same cache as the oracle",
        ),
        Code(
            "OUTPUT_DIVERGES", "REJECTED", "greedy tokens differ from the oracle's, and rounding does not explain it",
            "fix the loop, or record the oracle's two best logits at the first difference",
        ),
        Code(
            "DRAFTED_NOTHING", "NOTE", "the arm decoded without drafts, so its speed is that of plain decoding",
            "for lookup, choose prompts whose answers repeat their text; otherwise find out why nothing was drafted",
        ),
        Code(
            "OUTPUT_LOOPS", "NOTE", "the cache makes the model repeat itself where the raw cache does not",
            "store more bits, or leave the first and last layers raw (--boundary)",
        ),
        # Controls
        Code(
            "RECALL_VACUOUS", "REJECTED", "the answer is empty, given away, or the same for all prompts",
            "ask for an answer that only the prompt holds",
        ),
        Code(
            "CONTROL_FAILS", "REJECTED", "the tests do not distinguish right from wrong solutions",
            "find out what the sandbox or its limits do to the tests",
        ),
        Code(
            "RESULT_UNSTEADY", "INCOMPLETE", "one solution passed and failed the same tests",
            "measure again on an idle machine; leave out problems whose tests are random",
        ),
        Code("POISON_MISSING", "INCOMPLETE", "nothing shows that the model reads these positions", "add an arm poison"),
        Code(
            "IDENTITY_MISSING", "INCOMPLETE", "nothing shows that the machinery alone changes nothing",
            "add an arm identity",
        ),
        Code("EVICTED_MISSING", "INCOMPLETE", "nothing shows that restoring is needed", "add an arm evicted"),
        Code(
            "POISON_SURVIVES", "REJECTED", "recall survives although noise replaced the keys and values",
            "find out what the attention reads",
        ),
        Code(
            "EVICTED_SURVIVES", "REJECTED", "recall survives without the evicted positions, so the test proves nothing",
            "use longer prompts, or a model that cannot recall without them",
        ),
        Code("IDENTITY_BROKEN", "REJECTED", "putting the exact values back changes the output", "fix the injection"),
        Code(
            "LIVENESS_MISSING", "INCOMPLETE", "no counter shows that the arm did what its name says",
            "count rounds, drafts and injected positions in every row",
        ),
        Code("INJECTION_NEVER_RAN", "REJECTED", "the arm replaced no positions", "find out why it did not run"),
        # Memory, codecs, server
        Code(
            "MEMORY_NOT_LIVE", "INCOMPLETE", "some rows do not list the live arrays of their cache",
            "count the arrays of the cache after the last token, in every row",
        ),
        Code(
            "MEMORY_MISMATCH", "REJECTED", "the bytes are not the sum of the arrays', or unlike caches are compared",
            "list every array of every layer with its shape and type",
        ),
        Code(
            "RATE_IMPOSSIBLE", "REJECTED", "no code stores a Gaussian source at R bits with less error than 2^-2R",
            "look for a mistake in the rate or in the error",
        ),
        Code(
            "SPREAD_IMPOSSIBLE", "REJECTED", "errors that are never negative cannot vary that much",
            "use the standard error of the mean",
        ),
        Code("LIMIT_WRONG", "REJECTED", "the limit at R bits is 2^-2R", "compute the limit from the stored bits"),
        Code(
            "CELL_DIFFERS", "REJECTED", "an answer depends on drafts, cache, cached prompt or other clients",
            "find out which combination of features changes tokens; none may, except at a near tie",
        ),
        Code(
            "FEATURE_NEVER_RAN", "REJECTED", "no counter shows that a feature of the combination ran",
            "find out why the server did without it",
        ),
        # Two backends
        Code(
            "BACKEND_MISSING", "INCOMPLETE", "a cache ran over one backend only, so nothing is compared",
            "run each cache over both backends, the raw one too",
        ),
        Code(
            "CODES_DIFFER", "REJECTED", "equal vectors get other codes in the other backend",
            "fix the codec: both backends promise the same bytes for the same float32 vectors",
        ),
        Code(
            "RANKS_DIFFER", "REJECTED", "ranks that computed different results did not run one model",
            "use the same versions and files on all hosts, and measure again",
        ),
        # Two trees
        Code(
            "SAME_TREE", "REJECTED", "a tree compared with itself shows only the noise",
            "name another commit with --against",
        ),
        Code(
            "WITHIN_NOISE", "REJECTED", "the baseline differs as much from itself, so nothing shows a change",
            "claim none; more rounds, or more work in the measured step, show smaller changes",
        ),
        Code(
            "NO_DIFFERENCE", "NOTE", "no change is larger than what the baseline shows against itself",
            "to see smaller changes, raise compare.rounds in the preset, or give the measured step more work",
        ),
        Code(
            "NULL_ARM_DIFFERS", "NOTE", "two copies of one tree differ here, so small changes mean nothing",
            "measure on an idle machine, or processor time instead of wall time",
        ),
        # The earlier system
        Code(
            "OLDER_REPORT", "INCOMPLETE", "the earlier system's reports lack most of what the gate judges",
            "measure again with this version of the engine",
        ),
    )
}  # fmt: skip
