"""The draft-verify loop against plain decoding of our own, and plain decoding against mlx-lm's.

In float32 a block of rows and a single row differ by some 1e-6 of the logits here, and no prompt below comes
that close to a tie. A cache that rounds keys and values turns such a difference into a step of its codes now
and then, and the logits of these random models then move by tenths: there, a difference is looked into.
"""

import itertools
import signal
import threading

import numpy as np
import pytest

from engine import cache as kv
from engine.dflash import loop as loop_module
from engine.dflash.divergence import classify
from engine.dflash.loop import stream_generate
from engine.dflash.propose.adaptive import Adaptive
from engine.dflash.step import Stats
from engine.errors import BadInput
from engine.lm import generate_step
from engine.mx import mx
from tests.engine import drafts
from tests.engine import small_models as models
from tests.engine.dflash.test_stops import TOKENIZER
from tests.engine.oracle import Oracle

TARGETS = {"qwen3": models.qwen3(layers=4), "gemma3": models.gemma3()}
SHORT, LONG = 5, 40  # of gemma3's window of 16
EVERY = (3, 0, 7, 1, 15, 2, 5, 4, 6)  # drafts that are right, round by round


def prompt_of(n, seed=0):
    return models.tokens(n, seed=seed)[0].tolist()


def tokens_of(steps):
    return [token for step in steps for token in step.tokens]


def plain(target, prompt, n, caches=None):
    return tokens_of(stream_generate(target, None, None, prompt, max_tokens=n, block_size=1, caches=caches))


def fixed(target, draft, prompt, n, tokenizer=None, **options):
    options = {"adaptive": False, "lookup": False, **options}
    return list(stream_generate(target, draft, tokenizer, prompt, max_tokens=n, **options))


def goes_on_as_plain(target, prompt, given, caches):
    """Whether decoding can go on from caches that were left behind as if nothing had happened."""
    assert {cache.offset for cache in caches} == {len(prompt) + len(given) - 1}
    more = plain(target, given[-1:] or prompt[-1:], 12, caches)
    return [*given, *more] == plain(target, prompt, len(given) + 12)


@pytest.mark.rows(3)
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("length", [1, SHORT, LONG])
def test_plain_decoding_is_mlx_lms(target, length):
    prompt = prompt_of(length)
    native = generate_step(mx.array(prompt), target, max_tokens=40)
    assert plain(target, prompt, 40) == [int(token) for token, _ in native]


@pytest.mark.rows(3)
@pytest.mark.parametrize("block", [1, 2, 3, 5, 8, 16])
@pytest.mark.parametrize("length", [1, SHORT, LONG])
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_tokens_and_caches_are_those_of_plain_decoding(target, length, block):
    prompt, n = prompt_of(length), 48
    beside = kv.make_caches(target, "raw")
    known = plain(target, prompt, n, beside)
    oracle, caches = Oracle([*prompt, *known], EVERY, block), kv.make_caches(target, "raw")
    steps = fixed(target, oracle, prompt, n, caches=caches)
    assert tokens_of(steps) == known
    assert steps[-1].finish_reason == "length"
    for ours, theirs in zip(caches, beside, strict=True):
        assert ours.offset == theirs.offset == length + n - 1
        for a, b in zip(ours.keys_and_values(), theirs.keys_and_values(), strict=True):
            np.testing.assert_allclose(np.array(a), np.array(b), rtol=0, atol=2e-4)


@pytest.mark.parametrize("rollback", ["late", "carry"])
def test_the_other_rollbacks(rollback):
    target, prompt = TARGETS["gemma3"], prompt_of(LONG)
    known = plain(target, prompt, 40)
    assert tokens_of(fixed(target, Oracle([*prompt, *known], EVERY), prompt, 40, rollback=rollback)) == known


@pytest.mark.rows(1)
@pytest.mark.parametrize("spec", ["affine@4g64", "e8v@4.25:fast", "e8@q38"])
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_caches_that_round(target, spec):
    prompt, n = prompt_of(LONG), 16
    beside, caches = kv.make_caches(target, spec), kv.make_caches(target, spec)
    known = plain(target, prompt, n, beside)
    found = tokens_of(fixed(target, Oracle([*prompt, *known], EVERY), prompt, n, caches=caches))
    parted = classify(target, lambda: kv.make_caches(target, spec), prompt, found, known)
    assert parted is None or parted.kind == "tie"
    # The first layer's entries depend on token and position alone. A code that rounding flips changes a vector by about
    # the error of its cache; another token in its place would change it by about its own length.
    same = n if parted is None else parted.position
    first, second = (_first_layer(c[0], LONG + same - 1) for c in (caches, beside))
    changes = np.linalg.norm(first - second, axis=-1)
    flipped = np.abs(first - second).max(axis=(0, 1, 3)) >= 1e-3
    assert flipped.sum() <= max(2, 0.1 * len(flipped))
    assert changes.max() < 0.5 * np.linalg.norm(second, axis=-1).min()


def _first_layer(cache, end):
    """Return the keys before position ``end``, in the order of their positions."""
    if type(cache).__name__ == "QuantizedKVCache":
        keys = mx.dequantize(*cache.keys_and_values()[0], group_size=64, bits=4)
    else:
        keys = cache.keys_and_values()[0]
    keys = keys.dense() if hasattr(keys, "dense") else keys
    size = keys.shape[2]
    if size < cache.offset:  # a ring: where it begins depends on how its entries came
        at = np.arange(cache.offset - size, cache.offset)
        slot = getattr(cache, "inner", cache).state[-1]  # that is written next, and holds the oldest
        return np.roll(np.array(keys), -slot, axis=2)[:, :, at < end]
    return np.array(keys)[:, :, :end]


def test_every_count_of_accepted_drafts_is_reported():
    target, prompt = TARGETS["qwen3"], prompt_of(SHORT)
    known = plain(target, prompt, 60)
    stats = Stats()
    plan = (0, 1, 2, 3, 4, 5, 6, 7)
    for step, right in zip(
        fixed(target, Oracle([*prompt, *known], plan), prompt, 60), itertools.cycle(plan), strict=False
    ):
        stats.add(step)
        room = 60 - stats.tokens
        assert step.drafter == "dflash"
        assert (step.accepted, len(step.tokens)) == (right, right + 1) or room == 0
        assert step.proposed == 7 or room < 8
    found = stats.as_dict()
    assert found["tau"] == found["tokens"] / found["verify_steps"] == found["tokens_per_step"]
    assert found["acceptance"] == found["accepted"] / found["proposed"]
    assert found["tokens"] == 60 == found["accepted"] + found["steps"]


@pytest.mark.rows(2)
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("policy", [False, Adaptive()], ids=["fixed", "adaptive"])
def test_the_drafter_is_fed_the_taps_of_all_committed_tokens_in_order(target, policy):
    prompt, n = prompt_of(LONG), 60
    known = plain(target, prompt, n)
    oracle = Oracle([*prompt, *known], (0, 2, 0, 0, 0))
    fixed(target, oracle, prompt, n, prefill_chunk=16, adaptive=policy)
    tapped = loop_module.Proposer(oracle, target).tap(target)
    _, taps = tapped(mx.array([[*prompt, *known]]), kv.make_caches(target, "raw"))
    fed = oracle.taps
    assert len(prompt) < len(fed) < len(prompt) + n
    np.testing.assert_allclose(fed, np.array(taps[0, : len(fed)]), rtol=0, atol=2e-4)


@pytest.mark.rows(1)
@pytest.mark.parametrize("kind", [{}, drafts.SLIDING, drafts.DFLASH2], ids=["full", "sliding", "dflash2"])
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_real_drafters_of_random_weights(target, kind):
    prompt, n = prompt_of(LONG), 40
    steps = fixed(target, drafts.drafter(**kind), prompt, n)
    assert tokens_of(steps) == plain(target, prompt, n)
    assert sum(step.proposed for step in steps) > n


@pytest.mark.parametrize("adaptive", [True, False])
def test_lookup_without_a_drafter(adaptive):
    target, prompt = TARGETS["qwen3"], prompt_of(12) * 3
    steps = fixed(target, None, prompt, 80, lookup=True, adaptive=adaptive)
    assert tokens_of(steps) == plain(target, prompt, 80)
    assert {step.drafter for step in steps} <= {"lookup", "none"}
    assert sum(step.accepted for step in steps) > 20


@pytest.mark.long
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_adaptive_with_both_drafters(target):
    prompt = prompt_of(12) * 2
    known = plain(target, prompt, 120)
    for plan in ((0,), (99,), EVERY):
        oracle = Oracle([*prompt, *known], plan)
        assert tokens_of(stream_generate(target, oracle, None, prompt, max_tokens=120)) == known


def test_the_prompt_is_read_once(monkeypatch):
    target, prompt, rows = TARGETS["qwen3"], prompt_of(50), []
    call = type(target).__call__

    def counting(self, tokens, *args, **kwargs):
        rows.append(tokens.shape[1])
        return call(self, tokens, *args, **kwargs)

    known = plain(target, prompt, 20)
    monkeypatch.setattr(type(target), "__call__", counting)
    steps = fixed(target, Oracle([*prompt, *known], EVERY), prompt, 20, prefill_chunk=16)
    assert rows == [16, 16, 16, 1, *(step.proposed + 1 for step in steps)]
    assert steps[0].prefill > 0
    assert not any(step.prefill for step in steps[1:])


@pytest.mark.parametrize("sampled", [{}, {"temperature": 1.0, "seed": 1}], ids=["greedy", "sampled"])
def test_one_synchronisation_a_round(monkeypatch, sampled):
    target, prompt, waits = TARGETS["qwen3"], prompt_of(20), []
    known = plain(target, prompt, 30)
    wait = mx.eval
    monkeypatch.setattr(mx, "eval", lambda *args: (waits.append(1), wait(*args)))
    for options in ({}, {"block_size": 1}, {"loop": "two-phase"}):
        waits.clear()
        steps = fixed(target, Oracle([*prompt, *known], EVERY), prompt, 30, **options, **sampled)
        profiled = sum(step.proposed > 0 for step in steps) if "loop" in options else 0
        assert steps[-1].syncs == len(steps) + profiled
        assert len(waits) == 2 + profiled  # one chunk of the prompt, and the caches in the end


@pytest.mark.parametrize("loop", ["fused", "two-phase", "eager"])
def test_every_loop_gives_the_same_steps(loop):
    target, prompt = TARGETS["gemma3"], prompt_of(LONG)
    known = plain(target, prompt, 30)
    lazy, other = (
        fixed(target, Oracle([*prompt, *known], EVERY), prompt, 30, loop=name) for name in ("lazy", loop)
    )
    assert [(s.tokens, s.accepted, s.proposed) for s in lazy] == [
        (s.tokens, s.accepted, s.proposed) for s in other
    ]
    assert (other[-1].syncs > lazy[-1].syncs) is (loop != "fused")
    assert all(0 <= step.timing.wait <= step.timing.verify for step in other)


@pytest.mark.parametrize(
    ("options", "said"), [({"loop": "odd"}, "no loop"), ({"loop": "eager", "temperature": 1.0}, "greedy")]
)
def test_a_loop_that_cannot_be_is_refused(options, said):
    with pytest.raises(BadInput, match=said):
        fixed(TARGETS["qwen3"], None, [1], 2, **options)


@pytest.mark.long
@pytest.mark.rows(3)
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize(("adaptive", "block"), [(True, 8), (False, 8), (False, 1)])
def test_a_stop_inside_a_block_ends_tokens_and_caches(target, adaptive, block):
    prompt = prompt_of(LONG)
    known = plain(target, prompt, 24)
    for at in range(10):
        stop = known[at]
        end = known.index(stop)
        caches = kv.make_caches(target, "raw")
        oracle = Oracle([*prompt, *known], block=block)
        steps = fixed(target, oracle, prompt, 24, caches=caches, stop_tokens=[stop], adaptive=adaptive)
        assert tokens_of(steps) == known[: end + 1]
        assert [step.finish_reason for step in steps] == [None] * (len(steps) - 1) + ["stop"]
        assert all(0 <= step.accepted <= len(step.tokens) for step in steps)
        assert goes_on_as_plain(target, prompt, known[: end + 1], caches)


@pytest.mark.parametrize("block", [1, 8])
def test_text_that_may_begin_a_stop_string_comes_with_the_last_token(block):
    target, prompt = TARGETS["qwen3"], prompt_of(SHORT)
    known = plain(target, prompt, 12)
    text = TOKENIZER.decode(known)

    steps = fixed(target, None, prompt, 12, tokenizer=TOKENIZER, block_size=block, stop=[f"{text[-1]}never"])

    assert (tokens_of(steps), steps[-1].finish_reason) == (known, "length")
    assert "".join(step.text for step in steps) == text


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("block", [1, 8])
def test_an_iterator_that_is_closed_leaves_usable_caches(target, block):
    prompt = prompt_of(LONG)
    known = plain(target, prompt, 40)
    for rounds in (1, 2, 5):
        caches, given = kv.make_caches(target, "raw"), []
        steps = stream_generate(
            target,
            Oracle([*prompt, *known], EVERY, block),
            None,
            prompt,
            max_tokens=40,
            caches=caches,
            adaptive=False,
            lookup=False,
        )
        for step in itertools.islice(steps, rounds):
            given += step.tokens
        steps.close()
        assert goes_on_as_plain(target, prompt, given, caches)


@pytest.mark.rows(2)
@pytest.mark.parametrize("where", ["draft", "layer"])
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_an_error_in_a_round_leaves_usable_caches(monkeypatch, target, where):
    prompt = prompt_of(LONG)
    known = plain(target, prompt, 40)
    oracle, caches = Oracle([*prompt, *known], EVERY), kv.make_caches(target, "raw")
    steps = stream_generate(
        target, oracle, None, prompt, max_tokens=40, caches=caches, adaptive=False, lookup=False
    )
    given = [*next(steps).tokens, *next(steps).tokens]

    def fail(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        if where == "draft":
            patched.setattr(Oracle, "propose", fail)
        else:
            patched.setattr(type(target.layers[2].mlp), "__call__", fail)
        with pytest.raises(KeyboardInterrupt):
            next(steps)
    assert goes_on_as_plain(target, prompt, given, caches)


@pytest.mark.rows(1)
@pytest.mark.parametrize("block", [1, 8])
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_ctrl_c_is_heard_when_the_round_was_given_out(monkeypatch, target, block):
    prompt, caches = prompt_of(LONG), kv.make_caches(target, "raw")
    known = plain(target, prompt, 40)
    oracle, layer = Oracle([*prompt, *known], EVERY, block), type(target.layers[2].mlp)
    steps = stream_generate(
        target, oracle, None, prompt, max_tokens=40, caches=caches, adaptive=False, lookup=False
    )
    given, call = [*next(steps).tokens, *next(steps).tokens], layer.__call__

    def interrupted(self, x):
        signal.raise_signal(signal.SIGINT)
        return call(self, x)

    with monkeypatch.context() as patched:
        patched.setattr(layer, "__call__", interrupted)
        given += next(steps).tokens
    with pytest.raises(KeyboardInterrupt):
        next(steps)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert goes_on_as_plain(target, prompt, given, caches)


def test_generations_side_by_side_do_not_meet():
    target = TARGETS["gemma3"]
    prompts = [prompt_of(LONG, seed) for seed in range(3)]
    known = [plain(target, prompt, 30) for prompt in prompts]
    made = [Oracle([*p, *k], EVERY) for p, k in zip(prompts, known, strict=True)]

    def begin(i, draft):
        return stream_generate(target, draft, None, prompts[i], max_tokens=30, adaptive=False, lookup=False)

    running = [begin(i, draft) for i, draft in enumerate([*made[:2], drafts.drafter()])]
    found = [[], [], []]
    for turn in itertools.zip_longest(*running):
        for tokens, step in zip(found, turn, strict=True):
            tokens.extend(step.tokens if step else ())
    assert found == known


@pytest.mark.long
def test_generations_in_threads_do_not_meet():
    target, draft = TARGETS["gemma3"], drafts.drafter()
    prompts = [prompt_of(LONG, seed) for seed in range(3)]
    known = [plain(target, prompt, 24) for prompt in prompts]
    found, caches = [None] * 3, [kv.make_caches(target, "raw") for _ in prompts]

    def work(i):
        found[i] = tokens_of(fixed(target, draft, prompts[i], 24, caches=caches[i]))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == known
    assert goes_on_as_plain(target, prompts[0], known[0], caches[0])


def test_caches_carry_a_conversation():
    target, first, second = TARGETS["gemma3"], prompt_of(20), prompt_of(9, seed=5)
    caches = kv.make_caches(target, "raw")
    answer = tokens_of(fixed(target, drafts.drafter(), first, 10, caches=caches))
    found = tokens_of(fixed(target, drafts.drafter(), [answer[-1], *second], 20, caches=caches))
    assert found == plain(target, [*first, *answer, *second], 20)


@pytest.mark.long
def test_sampled_text_has_the_targets_distribution():
    """All texts of three tokens: the probability of each, from the target alone, against how often it came."""
    vocabulary, many = 4, 400
    target = models.qwen3(layers=2, vocab=vocabulary)
    draft = drafts.drafter(vocab_size=vocabulary, num_target_layers=2, target_layer_ids=(0, 1))
    prompt, texts = [1, 3, 2, 0, 1], list(itertools.product(range(vocabulary), repeat=3))
    rows = mx.softmax(target(mx.array([[*prompt, *text[:2]] for text in texts]))[:, -3:], axis=-1)
    exact = mx.take_along_axis(rows, mx.array(texts)[..., None], axis=-1)
    exact = np.array(exact, dtype=float).prod(axis=(1, 2))
    counts, accepted = np.zeros(len(texts)), 0
    for seed in range(many):
        steps = fixed(target, draft, prompt, 3, temperature=1.0, seed=seed)
        counts[texts.index(tuple(tokens_of(steps)))] += 1
        accepted += sum(step.accepted for step in steps)
    likely = exact * many >= 3
    observed = np.append(counts[likely], counts[~likely].sum())
    expected = np.append(exact[likely], exact[~likely].sum()) * many
    freedom = len(observed) - 1
    assert (((observed - expected) ** 2 / expected).sum() - freedom) / np.sqrt(2 * freedom) < 4
    assert many / 4 < accepted < 2 * many


def test_a_seed_repeats_a_sampled_text():
    target, draft, prompt = TARGETS["qwen3"], drafts.drafter(), prompt_of(12) * 2

    def text(seed):
        options = {"temperature": 0.8, "top_p": 0.95, "seed": seed}
        return tokens_of(stream_generate(target, draft, None, prompt, max_tokens=30, **options))

    assert text(1) == text(1) != text(2)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"prompt": []}, "prompt is empty"),
        ({"prompt": "text"}, "no tokenizer"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"block_size": 0}, "block_size is 0"),
        ({"prefill_chunk": 0}, "prefill_chunk is 0"),
        ({"temperature": -1}, "temperature is -1"),
        ({"stop": ["x"]}, "need a tokenizer"),
        ({"rollback": "magic"}, "no rollback"),
    ],
    ids=str,
)
def test_what_is_refused_is_refused_at_once(wrong, says):
    options = {"prompt": [1], "max_tokens": 4, **wrong}
    with pytest.raises(BadInput, match=says):
        stream_generate(TARGETS["qwen3"], None, None, options.pop("prompt"), **options)


def test_a_drafter_for_another_target_is_refused():
    with pytest.raises(BadInput, match="another target"):
        fixed(models.qwen3(layers=2), drafts.drafter(), [1, 2], 4)
