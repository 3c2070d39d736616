"""Violation codes about a report as a whole, its rows, prompts and outputs."""

from __future__ import annotations

from bridge.evidence.table.entry import missing, wrong

ENTRIES = (
    # Reports as such
    missing(
        "NO_REPORT",
        "the run left no report of a kind that the preset promises",
        "write a report of that kind in the job",
    ),
    missing(
        "JUDGED_TOO_LONG",
        "judging the reports of the run exceeds the time limit that they have together",
        "measure less in one job",
    ),
    wrong(
        "UNREADABLE",
        "the file is not one JSON object with one meaning",
        "write the report with kakeya-engine",
    ),
    wrong(
        "UNKNOWN_KIND",
        "the gate has no rules for this kind of report",
        "write one of the kinds that docs/evidence.md lists",
    ),
    wrong(
        "WRONG_KIND",
        "the preset promises another kind of report",
        "use the preset that makes this kind of report",
    ),
    wrong(
        "UNKNOWN_SCHEMA",
        "the gate does not know this version of the format",
        "measure again with this version of the engine",
    ),
    wrong(
        "LEGACY_SCHEMA",
        "reports of the first version were never checked",
        "measure again with this version of the engine",
    ),
    missing(
        "MALFORMED",
        "a field is missing, or has another type or an impossible value",
        "write the report as bridge/schemas/report-3.json says",
    ),
    wrong(
        "STRAY_FIELD",
        "the gate does not know the field, so nothing checks what it says",
        "make it a claim, or remove it",
    ),
    missing("NO_ROWS", "the report holds no measurement", "write every measurement as a row"),
    missing(
        "BAD_ROW",
        "a row lacks a figure, or holds one that cannot be measured",
        "write rows as bridge/schemas/report-3.json says",
    ),
    missing(
        "PROVENANCE_MISSING",
        "the report does not fully name its machine, code, models and options",
        "name host, chip, system, versions, code, weights, tokenizer and every option",
    ),
    wrong(
        "DANGLING_NAME",
        "a row, prompt, arm or claim uses a name that the report does not describe exactly once",
        "describe each arm, prompt and workload once",
    ),
    # Rows
    wrong(
        "ROW_CONTRADICTS",
        "the figures of a row cannot all be true",
        "count tokens, rounds and seconds where they happen",
    ),
    wrong(
        "ROW_REPEATED",
        "one measurement appears twice, so one run counts as several",
        "run each repeat, and write seconds unrounded",
    ),
    wrong(
        "ROWS_SET_ASIDE",
        "more than two runs of an arm on a prompt are marked as warm-up, so the counted ones may be a selection",
        "count every run except the first and a profiled one",
    ),
    # Prompts and what came out
    wrong(
        "PROMPT_REPEATED",
        "one text appears under several names, so one prompt counts as several",
        "ask each prompt once, and repeat the run instead",
    ),
    missing(
        "PROMPT_UNRECORDED",
        "the text of a prompt is not recorded",
        "record the text of each prompt, or head and tail of a long one",
    ),
    wrong(
        "PROMPT_MISSTATED",
        "the length of a prompt or the place of its needle does not fit its text",
        "count the tokens that the model was given, and say where the needle is",
    ),
    wrong(
        "PROMPT_DIGEST",
        "the digest of a prompt does not fit its text",
        "hash the text that was given to the tokenizer",
    ),
    wrong(
        "PROMPT_CONTAMINATED",
        "prompts share undeclared text, or workloads of unlike tasks end alike, which changes what is measured",
        "declare what all prompts of a workload share, and give each task its own",
    ),
    wrong(
        "OUTPUT_DEGENERATE",
        "the output repeats itself and the oracle's does not, so the cache is corrupted",
        "fix the cache, and compare the tokens with plain decoding",
    ),
    wrong(
        "WORKLOAD_DEGENERATE",
        "most of the decoded text repeats itself, so guessing it proves nothing",
        "choose other prompts, or stop earlier",
    ),
    # Identity with plain decoding
    missing(
        "ORACLE_MISSING",
        "the report does not show what plain decoding gives",
        "name an oracle for the arm and run it on the same prompts",
    ),
    wrong(
        "OUTPUT_DIVERGES",
        "greedy tokens differ from the oracle's, and no near tie of its logits explains it",
        "fix the loop, or record the oracle's two best logits at the first difference",
    ),
    wrong(
        "NOT_GREEDY",
        "at a temperature above 0, nothing shows that the output is the target's",
        "claim speed at temperature 0",
    ),
    wrong(
        "ORACLE_UNFIT",
        "the oracle drafts, is not a stock loop, or uses another cache, so repeating it proves nothing",
        "name plain decoding over the same cache",
    ),
)
