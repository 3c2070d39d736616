"""Nothing is claimed about the speed or the acceptance of answers that repeat themselves."""

from __future__ import annotations

from bridge.reports.claims.decoding import speculation_claims
from bridge.reports.claims.why_no_speed import why_no_speed

GUESSED = {
    "plain_speedup",
    "worst_plain_speedup",
    "accept_length",
    "accept_rate",
    "decode_tok_s",
    "decode_speedup",
    "worst_speedup",
    "e2e_speedup",
}
ARMS = [
    {"name": "native", "role": "baseline", "oracle": None},
    {"name": "ours", "role": "candidate", "oracle": "native"},
]
ROUNDS = {"commits": [20, 21], "drafted": [20, 20], "accepted": [19, 20]}


def row(arm, prompt, repeat, tokens):
    times = {"prefill_s": 1.0, "decode_s": 1.0, "e2e_s": 2.0, "decode_tokens": 40}
    told = {"arm": arm, "prompt": prompt, "repeat": repeat, "warmup": repeat == 0, "tokens": tokens}
    return {**told, **times, "memory": {"cache_bytes": 8}, **(ROUNDS if arm == "ours" else {})}


def rows(answers):
    return [
        row(arm, prompt, repeat, tokens)
        for prompt, tokens in answers.items()
        for repeat in range(4)
        for arm in ("native", "ours")
    ]


def names(made, workload=None):
    return {claim["name"] for claim in made if claim.get("where", {}).get("workload") == workload}


FINE, DULL = [*range(41)], [*range(20), *[7] * 21]


def prompts(of):
    return [{"id": prompt, "workload": workload} for workload, some in of.items() for prompt in some]


def test_nothing_is_claimed_of_the_speed_of_one_set_whose_answers_repeat_themselves():
    answers = {f"a{i}": FINE for i in range(5)} | {"b1": DULL, "b2": FINE}
    about = prompts({"a": [f"a{i}" for i in range(5)], "b": ["b1", "b2"]})
    made = speculation_claims({"rows": rows(answers), "arms": ARMS, "prompts": about})
    assert names(made) >= GUESSED
    assert names(made, "a") >= GUESSED
    assert names(made, "b") == {"cache_bytes", "identical_outputs"}
    (said,) = why_no_speed({"rows": rows(answers), "arms": ARMS, "prompts": about, "config": {}})
    assert said == "b: no speed or acceptance is claimed, since native repeats itself on 1 of 2 prompts"


def test_nothing_is_claimed_of_any_set_where_all_together_repeat_themselves():
    answers = {f"a{i}": FINE for i in range(3)} | {f"b{i}": DULL for i in range(3)}
    about = prompts({"a": ["a0", "a1", "a2"], "b": ["b0", "b1", "b2"]})
    made = speculation_claims({"rows": rows(answers), "arms": ARMS, "prompts": about})
    assert not {claim["name"] for claim in made} & GUESSED
    said = [*why_no_speed({"rows": rows(answers), "arms": ARMS, "prompts": about, "config": {}})]
    assert [sentence.split(":")[0] for sentence in said] == ["all prompts", "b"]
