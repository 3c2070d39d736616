"""Laws of answers and prompts: answers depend on prompts, end for a reason, and bundled prompts have known tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from bridge.evidence.bundled import bundled
from bridge.evidence.laws.configured import option
from bridge.evidence.laws.law import DECODED, PROMPTED, TIMED, law
from bridge.evidence.laws.vocabulary import vocabulary_of
from bridge.evidence.names import ACCEPTED
from bridge.evidence.names import TIMED as TIMES
from bridge.evidence.report_index import ReportIndex
from bridge.evidence.stats import loops, repeated_share

# Shorter answers may be alike: two prompts can be answered in one word.
LONG = 24
# The share of prompts whose answer may be another prompt's.
ALIKE = 0.2
# The share of an answer that one unit, three times over or more, may be. Measured: at most an eighth of a report's
# answers have more.
MOSTLY = 0.6


@law(
    "WORKLOAD_DEGENERATE", TIMED, "rows.tokens rows.prompt arms.role models.weights",
    "a bundled model answers different prompts differently",
)  # fmt: skip
def answers_differ(index: ReportIndex) -> Iterator[str]:
    if vocabulary_of(index) is None or not any(index.named(*TIMES, *ACCEPTED)):
        return  # a model that nobody trained may answer so
    for base in index.arms_of("baseline"):
        firsts = [
            tuple(index.decodes(base.name, prompt)[0].tokens) for prompt in index.measured.get(base.name, {})
        ]
        several = sum(
            times for tokens, times in Counter(firsts).items()
            if times > 1 and len(tokens) >= LONG and not loops(tokens)
        )  # fmt: skip
        if several > ALIKE * len(firsts):
            yield f"{base.name} gives the same answer to {several} of {len(firsts)} prompts"


@law(
    "WORKLOAD_DEGENERATE", TIMED, "rows.tokens rows.prompt config.fixed_length",
    "most answers that are claimed of are no few tokens, over and over",
)  # fmt: skip
def answers_go_on(index: ReportIndex) -> Iterator[str]:
    if getattr(index.report.config, "fixed_length", False) is True:
        return  # decoded past the end of what there was to say
    for name in dict.fromkeys(claim.arm or "" for claim in index.named(*TIMES, *ACCEPTED)):
        firsts = [
            rows[0].tokens for prompt in index.measured.get(name, {}) if (rows := index.decodes(name, prompt))
        ]
        looping = sum(len(tokens) >= LONG and repeated_share(tokens) > MOSTLY for tokens in firsts)
        if looping * 2 > len(firsts):
            yield f"{name} repeats itself in {looping} of {len(firsts)} answers"


@law(
    "TEXT_CONTRADICTS", DECODED, "rows.stop rows.tokens models.tokenizer",
    "without stop strings, an answer ends with a token that ends answers, or for its length",
)  # fmt: skip
def no_other_stop(index: ReportIndex) -> Iterator[str]:
    words = vocabulary_of(index)
    for i, row in enumerate(index.rows) if words is not None else ():
        if words is not None and row.stop == "stop" and row.tokens and row.tokens[-1] not in words.ends:
            yield f"row {i}: it stopped by a stop string, and none is configured"


@law(
    "PROMPT_MISSTATED", PROMPTED, "prompts.n_tokens prompts.sha256 models.tokenizer",
    "a bundled prompt has its known number of tokens, and any prompt as many as its bytes and the vocabulary allow",
)  # fmt: skip
def tokens_of_prompts(index: ReportIndex) -> Iterator[str]:
    words = vocabulary_of(index)
    if words is None:
        return
    known = bundled()["tokens"].get(_tokenizer(index), {})
    longest, cut = max(map(len, words.pieces)), option(index.report.config, "tokens")
    for prompt in index.all_prompts:
        told = index.workloads.get(prompt.workload)
        count = known.get(prompt.sha256)
        if count is None or told is None or told.chat_template is not False:
            count = prompt.n_tokens
        elif isinstance(cut, int) and cut > 0:
            count = min(count, cut)
        if prompt.n_tokens != count:
            yield f"prompt {prompt.id} has {prompt.n_tokens} tokens; the tokenizer gives {count}"
        elif (
            prompt.text is not None
            and not cut
            and prompt.n_tokens * longest < len(prompt.text.encode("utf-8", "replace"))
        ):
            yield f"prompt {prompt.id} has {prompt.n_tokens} tokens, and its text is longer than so many can be"


def _tokenizer(index: ReportIndex) -> Any:
    return index.target.tokenizer if index.target is not None else None


@law(
    "PROMPT_MISSTATED", PROMPTED, "workloads.task prompts.sha256 prompts.expected",
    "bundled prompts have the task of their set, and only prompts that hide an answer are recall",
)  # fmt: skip
def tasks_of_prompts(index: ReportIndex) -> Iterator[str]:
    sets = bundled()["prompts"]
    for name, told in index.workloads.items():
        prompts = [prompt for prompt in index.all_prompts if prompt.workload == name]
        own = next((each for each, known in sets.items() if prompts and prompts[0].sha256 in known), None)
        task = bundled()["tasks"].get(own)
        if task is not None and told.task != task:
            yield f"the prompts of {name} are the bundled {own}, whose task is {task}; {told.task} is told"
        elif any(prompt.expected for prompt in prompts) and told.task != "recall":
            yield f"the prompts of {name} hide answers, and their task is said to be {told.task}"
