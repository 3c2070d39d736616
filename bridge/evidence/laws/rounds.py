"""Laws of rounds: what a draft-verify loop can commit, propose and count."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from bridge.evidence.bundled import bundled_target
from bridge.evidence.laws.law import FOUND, SPEC, law
from bridge.evidence.laws.meaning import drafter_of_the_name
from bridge.evidence.parts import Arm
from bridge.evidence.report_index import ReportIndex
from bridge.evidence.rows import Decode
from bridge.evidence.rules_output import near_tie

_PACKAGE = "dflash."
OURS = "engine.dflash.stream_generate"
# The engine calls it a tie if logits lie apart by at most so many times what rounding moved them by.
TIES = 4.0
KINDS = ("tie", "fault", "length")
# Rows of a block of the bundled draft models, and of a looked-up one.
DRAFTED, LOOKED_UP = 8, 16


def _block(index: ReportIndex, arm: Arm) -> int | None:
    """Return the most rows that an arm verifies at once; None if nothing says so."""
    for found in (
        arm.options.get("block_size"), getattr(index.report.config, "block", None),
        getattr(index.report.config, "block_size", None),
    ):  # fmt: skip
        if isinstance(found, int) and not isinstance(found, bool) and found > 0:
            return found
    return None


def _drafted(index: ReportIndex) -> Iterator[tuple[int, Decode, Arm]]:
    """Yield the rows that count rounds, with their place and their arm."""
    for i, row in enumerate(index.rows):
        if row.commits and row.drafted is not None and row.accepted is not None and row.arm in index.arms:
            yield i, row, index.arms[row.arm]


@law(
    "ROUNDS_CONTRADICT", SPEC, "rows.commits rows.accepted",
    "a round commits its accepted drafts and one more token; only the last round may commit fewer",
)  # fmt: skip
def committed_is_accepted_and_one(index: ReportIndex) -> Iterator[str]:
    for i, row, _ in _drafted(index):
        rounds = [*zip(row.commits or [], row.accepted or [], strict=False)]
        odd = next((n for n, (c, a) in enumerate(rounds[:-1]) if c != a + 1), None)
        if not rounds:
            yield f"row {i}: rounds are not counted alike"
        elif odd is not None:
            yield f"row {i}: round {odd} committed {rounds[odd][0]} tokens, and {rounds[odd][1]} drafts were accepted"
        elif rounds[-1][0] < 1:
            yield f"row {i}: its last round committed nothing"


@law(
    "ROUNDS_CONTRADICT", SPEC, "rows.commits rows.drafted arms.options.block_size config.block",
    "no round proposes more than its block has room for",
)  # fmt: skip
def within_the_block(index: ReportIndex) -> Iterator[str]:
    for i, row, arm in _drafted(index):
        block = _block(index, arm)
        if block is not None and max(row.drafted or [0]) > block - 1:
            yield f"row {i}: {max(row.drafted or [0])} drafts in a block of {block}"


@law(
    "ROUNDS_CONTRADICT", SPEC, "rows.drafted rows.commits arms.options config.max_tokens",
    "a drafter that does not adapt proposes whole blocks until max_tokens is near; a lookup may propose nothing",
)  # fmt: skip
def whole_blocks(index: ReportIndex) -> Iterator[str]:
    for i, row, arm in _drafted(index):
        block = arm.options.get("block_size")
        if (
            not isinstance(block, int)
            or arm.options.get("adaptive") is not False
            or arm.loop.startswith(_PACKAGE)
        ):
            continue
        idle = arm.options.get("lookup") is True
        odd = _short_round(row, block, index.report.config.max_tokens, idle=idle)
        if odd is not None:
            yield f"row {i}: round {odd[0]} proposed {odd[1]} drafts where {odd[2]} fit"


def _short_round(row: Decode, block: int, tokens: int, *, idle: bool) -> tuple[int, int, int] | None:
    """Return the first round that proposed fewer drafts than fit: its number, its drafts, and how many fit.

    Args:
        row: of an arm.
        block: the most rows of a round.
        tokens: the most of the answer.
        idle: whether a round may propose nothing.
    """
    done = len(row.tokens) - sum(row.commits or [])
    for n, (committed, drafted) in enumerate(zip(row.commits or [], row.drafted or [], strict=False)):
        room = min(block, tokens - done) - 1
        if drafted < room and not (idle and drafted == 0):
            return n, drafted, room
        done += committed
    return None


@law(
    "ROUNDS_CONTRADICT", SPEC, "rows.drafted rows.commits arms.options config.max_tokens models.weights",
    "without a block of its own, a draft model proposes as many drafts in each round until max_tokens is near, and no "
    "round of a bundled model more than fit",
)  # fmt: skip
def blocks_of_the_draft_model(index: ReportIndex) -> Iterator[str]:
    of_arms: dict[str, list[tuple[int, Decode]]] = defaultdict(list)
    for i, row, arm in _drafted(index):
        if _block(index, arm) is None:
            of_arms[arm.name].append((i, row))
    for name, rows in of_arms.items():
        arm = index.arms[name]
        alone = arm.options.get("adaptive") is False and arm.options.get("lookup") is False
        most = max(max(row.drafted or [0]) for _, row in rows)
        if bundled_target(index) and most >= (DRAFTED if alone else LOOKED_UP):
            yield f"{name} proposed {most} drafts in a round"
        for i, row in rows if alone and arm.loop == OURS else ():
            odd = _short_round(row, most + 1, index.report.config.max_tokens, idle=False)
            if odd is not None:
                yield f"row {i}: round {odd[0]} proposed fewer than the {most} drafts of other rounds"
                break


@law(
    "ROUNDS_CONTRADICT", SPEC, "rows.counters rows.commits arms.options",
    "the counters of rounds equal the lists, and only arms with a drafter count its rounds",
)  # fmt: skip
def counters_agree(index: ReportIndex) -> Iterator[str]:
    for i, row, arm in _drafted(index):
        counted = {name: n for name, n in row.counters.items() if name.startswith("rounds_")}
        rounds = len(row.commits or [])
        if arm.loop == OURS and not {"rounds", "syncs"} <= {*row.counters}:
            yield f"row {i}: {arm.name} counts no rounds or no waits for the device"
        elif row.counters.get("rounds", rounds) != rounds:
            yield f"row {i}: {row.counters['rounds']} rounds are counted, and {rounds} listed"
        elif "rounds" in row.counters and counted and sum(counted.values()) != rounds:
            yield f"row {i}: {sum(counted.values())} rounds are counted by drafter, and {rounds} listed"
        elif counted.get("rounds_lookup") and arm.options.get("lookup") is False:
            yield f"row {i}: {arm.name} drafted by lookup, and is said to have none"
        elif row.counters.get("syncs", rounds) < rounds:
            yield f"row {i}: {rounds} rounds, and {row.counters['syncs']} waits for the device"
        elif "rounds_none" in counted and (row.drafted or []).count(0) < counted["rounds_none"]:
            yield f"row {i}: {counted['rounds_none']} rounds without drafts are counted, and fewer listed"


@law(
    "ROUNDS_CONTRADICT", SPEC, "rows.commits rows.drafted rows.accepted rows.tokens arms.options.adaptive",
    "the same tokens, drafted by the same arm on the same prompt, take the same rounds, unless it adapts to time",
)  # fmt: skip
def repeated_rounds(index: ReportIndex) -> Iterator[str]:
    known: dict[tuple[str, str, tuple[int, ...]], tuple[int, list[list[int]]]] = {}
    for i, row, arm in _drafted(index):
        if arm.options.get("adaptive") is not False:
            continue
        rounds = [row.commits or [], row.drafted or [], row.accepted or []]
        first, other = known.setdefault((row.arm, row.prompt, tuple(row.tokens)), (i, rounds))
        if rounds != other:
            yield f"row {i}: its rounds are not those of row {first}, which has the same tokens"


@law(
    "ROUNDS_CONTRADICT", SPEC,
    "rows.drafted arms.options.block_size arms.options.lookup arms.options.rollback arms.loop",
    "an arm drafts as its options say: in blocks of several rows, and in the engine's own loop if it has a rollback",
)  # fmt: skip
def told_and_done(index: ReportIndex) -> Iterator[str]:
    for arm in index.all_arms:
        rows = [row for row in index.all_decodes(arm.name) if row.drafted is not None]
        drafts = sum(sum(row.drafted or []) for row in rows)
        block = arm.options.get("block_size")
        if arm.name.lower() == "incremental" and rows and block not in (None, 1):
            yield f"{arm.name} verifies {block} rows at once, and drafts nothing"
        elif block == 1 and drafts:
            yield f"{arm.name} verifies one row at once, and proposed {drafts} drafts"
        elif "rollback" in arm.options and arm.loop.startswith(_PACKAGE):
            yield f"{arm.name} is decoded by {arm.loop}, which is told no rollback"
        elif arm.options.get("lookup") is False and arm.options.get("adaptive") is False and rows:
            idle = [row for row in rows if row.counters.get("rounds_lookup")]
            if idle:
                yield f"{arm.name} counts rounds of a lookup that it was told not to use"


@law(
    "ROUNDS_CONTRADICT", SPEC, "rows.commits rows.tokens arms.loop",
    "the rounds of the engine's loop commit exactly the tokens of the answer",
)  # fmt: skip
def rounds_make_the_answer(index: ReportIndex) -> Iterator[str]:
    for i, row, arm in _drafted(index):
        committed = sum(row.commits or [])
        if arm.loop == OURS and committed != len(row.tokens):
            yield f"row {i}: rounds committed {committed} tokens, and the answer has {len(row.tokens)}"


@law(
    "ROUNDS_CONTRADICT", SPEC, "arms.name arms.loop arms.options",
    "what is named after a drafter of the engine, or rolls back, drafts in the engine's own loop",
)  # fmt: skip
def drafters_in_their_loop(index: ReportIndex) -> Iterator[str]:
    for arm in index.all_arms:
        ours = drafter_of_the_name(arm) or "rollback" in arm.options
        if ours and arm.loop != OURS and not arm.loop.startswith(_PACKAGE):
            yield f"{arm.name} drafts in {arm.loop}; the engine drafts in {OURS}"


@law(
    "ROUNDS_CONTRADICT", (*SPEC, *FOUND), "rows.divergence rows.tokens arms.oracle",
    "a divergence is recorded only where tokens part, with the margin of its logits and the oracle's own token",
)  # fmt: skip
def divergences_are_real(index: ReportIndex) -> Iterator[str]:
    known: dict[tuple[object, ...], object] = {}
    for i, row in enumerate(index.rows):
        found, arm = row.divergence, index.arms.get(row.arm)
        if found is None or arm is None:
            continue
        oracle = index.oracle_of(row)
        high, low = (logit for _, logit in found.best)
        margin = getattr(found, "margin", None)
        kind = getattr(found, "kind", None)
        if oracle is not None and not row.warmup and row.tokens == oracle.tokens:
            yield f"row {i}: a divergence is recorded, and the tokens are the oracle's"
        elif high < low:
            yield f"row {i}: the logits of a divergence are not in their order"
        elif isinstance(margin, int | float) and abs(margin - abs(high - low)) > near_tie(
            index, found, arm.cache
        ):
            yield f"row {i}: a margin of {margin:g} is recorded, and the logits lie {abs(high - low):.3g} apart"
        elif kind == "tie" and abs(high - low) > near_tie(index, found, arm.cache):
            yield f"row {i}: the logits lie {abs(high - low):.3g} apart, which is called a tie"
        elif oracle is not None and not row.warmup and found.index < len(row.tokens) and oracle.tokens:
            key = (
                row.prompt,
                arm.cache,
                found.index,
                tuple(oracle.tokens[: found.index + 1]),
                row.tokens[found.index],
            )
            if known.setdefault(key, found.best) != found.best:
                yield f"row {i}: the same divergence has other logits elsewhere"


@law(
    "ROUNDS_CONTRADICT", (*SPEC, *FOUND), "rows.divergence.kind rows.divergence.margin rows.divergence.rounding",
    f"a divergence is a tie if its margin is at most {TIES:g} times what rounding moved the logits by, else a fault, "
    "unless one answer is the other's beginning",
)  # fmt: skip
def kinds_of_divergences(index: ReportIndex) -> Iterator[str]:
    for i, row in enumerate(index.rows):
        if row.divergence is None:
            continue
        kind, margin, rounding = (
            getattr(row.divergence, name, None) for name in ("kind", "margin", "rounding")
        )
        if kind is not None and kind not in KINDS:
            yield f"row {i}: {str(kind)[:60]!r} is no kind of divergence"
        elif (
            kind in KINDS[:2] and isinstance(margin, int | float) and isinstance(rounding, int | float)
            and (kind == "tie") != (margin <= TIES * rounding)
        ):  # fmt: skip
            yield f"row {i}: a margin of {margin:.3g}, with logits moved by {rounding:.3g}, is called a {kind}"
