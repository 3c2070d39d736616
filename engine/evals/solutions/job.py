"""pass@1: a model solves each problem once, greedily, with several caches, with and without drafts.

Plain decoding is our loop without drafts; ``bench spec`` shows that its tokens are mlx-lm's. With drafts, every round
drafts, so that the comparison does not depend on which drafts pay on this machine.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bridge.reports import kinds
from engine.cache import make_caches
from engine.cache.factory import patches_of
from engine.cache.protocol import Cache
from engine.dflash import stream_generate
from engine.dflash.step import Step
from engine.evals.recall import try_caches
from engine.evals.solutions import problems
from engine.evals.solutions.execution import run_tests
from engine.evals.solutions.problems import Problem
from engine.evals.speculation.arms import OUR_LOOP
from engine.evals.speculation.bench import explain, rounds
from engine.harness.arm import Arm, Turn, interleave
from engine.harness.job import Job, sections
from engine.harness.prompt_sets import Prompt, Workload
from engine.harness.rows import Row
from engine.models import Pair

KIND = kinds.SOLUTIONS
# The controls: their roles, and their answers, which continue a problem's text.
CONTROLS: dict[str, tuple[str, Callable[[Problem], str]]] = {
    "canonical": ("identity", lambda problem: f"\n{problem.canonical}"),
    "empty": ("poison", lambda _: "\n    pass\n"),
}

SolvingArm = Arm[list[Cache]]


def arms_of(pair: Pair, caches: Sequence[str], *, chat: bool) -> tuple[list[SolvingArm], dict[str, str]]:
    """Return each cache without and with drafts, then the controls; and the caches left out, with the reason.

    Raises:
        BadInput: the model can use none of the caches.
    """
    packed, left_out = try_caches(pair.target, ("raw", *caches), 0)
    arms = []
    for spec in ("raw", *packed):
        arms += [_arm(pair, spec, drafts=drafts, chat=chat) for drafts in (False, True)]
    controls = [Arm[list[Cache]](name, role, "none", lambda _: []) for name, (role, _) in CONTROLS.items()]
    return [*arms, *controls], left_out


def _arm(pair: Pair, cache: str, *, drafts: bool, chat: bool) -> SolvingArm:
    config: dict[str, Any] = {"lookup": drafts, "adaptive": False, "block_size": None if drafts else 1}
    stops = () if chat else problems.STOPS

    def decode(ids: Sequence[int], most: int, caches: list[Cache]) -> Iterator[Step]:
        draft = pair.draft if drafts else None
        return stream_generate(
            pair.target, draft, pair.tokenizer, ids, max_tokens=most, caches=caches, stop=stops, **config
        )

    plain = f"plain {cache}"
    return Arm(
        f"drafted {cache}" if drafts else plain,
        "baseline" if cache == "raw" and not drafts else "candidate",
        OUR_LOOP,
        lambda _: make_caches(pair.target, cache),
        decode,
        oracle=plain if drafts else None,
        cache=cache,
        patches=patches_of(pair.target, make_caches(pair.target, cache)),
        options={**config, "drafter": drafts and pair.draft is not None},
    )


def solve(arm: SolvingArm, prompt: Prompt, most: int) -> Row:
    """Return an arm's answer: its tokens, its text and, if the arm drafts, its rounds."""
    if arm.decode is None:
        raise TypeError(f"the arm {arm.name} does not decode")
    with arm.attention():
        steps = list(arm.decode(prompt.ids, most, arm.make(prompt)))
    return {
        "counters": {},
        "tokens": [token for step in steps for token in step.tokens],
        "text": "".join(step.text for step in steps),
        "stop": steps[-1].finish_reason or "stop",
        **(rounds(steps) if arm.oracle else {}),
    }


def job(
    pair: Pair, arms: Sequence[SolvingArm], posed: Sequence[Problem], config: dict[str, Any],
    *, most: int, chat: bool,
) -> Job:  # fmt: skip
    """Return the job in which every arm solves every problem in at most ``most`` tokens.

    With ``chat``, problems are asked as a user's message.
    """
    known = {problem.id: problem for problem in posed}
    prompts = problems.prompts_of(posed, pair.tokenizer, chat=chat)
    shared = {"shared_prefix": problems.PREFIX, "shared_suffix": problems.SUFFIX} if chat else {}
    workload = Workload(problems.NAME, prompts, "code", problems.NAME, shared)

    def measure(turn: Turn[SolvingArm, Prompt]) -> list[Row]:
        problem = known[turn.prompt.id]
        if turn.arm.name in CONTROLS:
            answer = CONTROLS[turn.arm.name][1](problem)
            row: Row = {"tokens": [], "text": answer, "stop": None, "counters": {}}
            module = problems.program(problem, answer, chat=False)
        else:
            row = solve(turn.arm, turn.prompt, most)
            module = problems.program(problem, row["text"], chat=chat)
        return [row | run_tests(module)._asdict()]

    return Job(
        KIND,
        sections(pair, [workload], arms, chat=chat),
        config,
        turns=list(interleave(arms, prompts)),
        measure=measure,
        finish=lambda rows: explain(rows, arms, prompts, pair),
    )
