"""Honest reports of every kind, small, and made anew for each caller: lies are told by changing them.

`restate` takes all claims again from the rows, by formulas of its own: a lie in the rows is then no lie in the claims.
"""

from __future__ import annotations

import hashlib
import marshal
import math
import random
import statistics
from collections.abc import Callable
from typing import Any

Report = dict[str, Any]
DIGEST = "sha256:" + hashlib.sha256(b"the engine's sources").hexdigest()
IDENTITY = {
    "host": "a-machine", "os": "an-os", "chip": "a-chip", "device": "cpu", "versions": {"mlx": "0.32.4"},
    "blas": {"name": "openblas"}, "load": [0.1], "modified": [],
    "code": {"version": "0.1.0", "digest": DIGEST, "commit": None, "dirty": None},
}  # fmt: skip


def model(role: str = "target", name: str = "small", **fields: Any) -> dict[str, Any]:
    """A model that is none of those that come with the engine."""
    digests = {
        field: "sha256:" + hashlib.sha256(f"{field} of {role}".encode()).hexdigest()
        for field in ("weights", "config", "tokenizer")
    }
    return {"role": role, "id": name, "dtype": "bfloat16", **digests, **fields}


MODEL = model()
DEFINITION = "as docs/evidence.md defines it"
REPEATS = 3
TOKENS = 41
LAYERS = 2
# The token that ends an answer, and those that stand for the codes of needles.
END, FIRST_CODE = 2, 1000


def copy(value: Any) -> Any:
    """Return a copy of which no part is another's. Later formats of marshal would keep what is shared."""
    return marshal.loads(marshal.dumps(value, 2))


def envelope(kind: str, **fields: Any) -> Report:
    return copy({
        "kind": kind, "schema_version": 3, "created_at": "2026-01-31T12:00:00Z", "seconds": 600.0, "identity": IDENTITY,
        **fields,
    })  # fmt: skip


def digest(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def prompt(name: str, workload: str, text: str, **fields: Any) -> Report:
    return {
        "id": name,
        "workload": workload,
        "sha256": digest(text),
        "n_tokens": 3 + len(text) // 4,
        "text": text,
        **fields,
    }


def claim(name: str, arm: str | None = None, against: str | None = None, **where: Any) -> Report:
    made = {
        "name": name,
        "arm": arm,
        "against": against,
        "where": where,
        "value": 0.0,
        "definition": DEFINITION,
    }
    return {key: value for key, value in made.items() if value is not None}


def memory(positions: int, layers: int = 2, dtype: str = "bfloat16", width: int = 64) -> Report:
    size = {"bfloat16": 2, "uint32": 4, "uint8": 1}[dtype]
    arrays = [{"shape": [1, 2, positions, width], "dtype": dtype}] * 2
    nbytes = 2 * 2 * positions * width * size
    made = {"kind": "KVCache", "nbytes": nbytes, "arrays": arrays}
    return copy({"counted": "live_arrays", "cache_bytes": layers * nbytes, "layers": [made] * layers})


def tokens_of(name: str) -> list[int]:
    dice = random.Random(name)
    return [dice.randrange(END + 1, FIRST_CODE) for _ in range(TOKENS)]


def text_of(tokens: list[int]) -> str:
    """What these tokens stand for: a word each, or a needle's code."""
    return "".join(
        f" {NEEDLES[token - FIRST_CODE]}." if 0 <= token - FIRST_CODE < len(NEEDLES) else f" w{token:x}"
        for token in tokens
    )


class Clock:
    """Seconds that no two rows share, a few per cent around what is asked for."""

    def __init__(self) -> None:
        self.dice = random.Random(7)

    def about(self, seconds: float) -> float:
        return seconds * (1 + 0.04 * (self.dice.random() - 0.5))


def decode(clock: Clock, arm: str, name: str, repeat: int, rate: float, **fields: Any) -> Report:
    tokens = fields.pop("tokens", None) or tokens_of(name)
    prefill, decoding = clock.about(0.2), clock.about((len(tokens) - 1) / rate)
    return {
        "arm": arm, "prompt": name, "repeat": repeat, "prefill_s": prefill, "decode_s": decoding,
        "decode_tokens": len(tokens) - 1, "e2e_s": prefill + decoding, "tokens": tokens, "text": text_of(tokens),
        "stop": "length", **fields,
    }  # fmt: skip


def rounds(tokens: int = TOKENS - 1) -> Report:
    """Four tokens a round: three of seven drafts, and the target's own."""
    n = tokens // 4
    return {"commits": [4] * n, "drafted": [7] * n, "accepted": [3] * n}


def arm(name: str, role: str, cache: str = "raw", **fields: Any) -> Report:
    loops = {"baseline": "mlx_lm.generate_step", "verify1": "engine.one_pass", "candidate": "engine.dflash"}
    loop = loops.get(role, "engine.restore")
    return {"name": name, "role": role, "loop": loop, "cache": cache, "patches": [], **fields}


CODE = {"task": "code", "source": "our own", "chat_template": False}
CODE_TEXTS = (
    "Write a queue with two stacks.", "def merge(a, b):", "Sort a linked list in place", "class Ring:\n    ",
)  # fmt: skip
ASKED = {"repeats": REPEATS, "drafters": [], "rollbacks": [], "left_out": {}, "cache": "raw"}
SPEC_ARMS = [
    arm("mlx-lm", "baseline"),
    arm("one-pass", "verify1"),
    arm("dflash", "candidate", oracle="mlx-lm"),
]
RATES = {"mlx-lm": 25.0, "one-pass": 23.0, "dflash": 50.0}


def spec_bench(kind: str = "kakeya.spec-bench", repeats: int = REPEATS) -> Report:
    clock = Clock()
    prompts = [prompt(f"code-{i}", "code", text) for i, text in enumerate(CODE_TEXTS)]
    rows = []
    for asked in prompts:
        for repeat in range(repeats):
            for name, rate in RATES.items():
                fields = rounds() if name == "dflash" else {}
                held = memory(300 if name == "dflash" else 400)
                rows.append(decode(clock, name, asked["id"], repeat, rate, memory=held, **fields))
    claims = [claim(name, "dflash", "mlx-lm") for name in ("decode_speedup", "worst_speedup", "e2e_speedup")]
    claims += [claim("memory_saving", "dflash", "mlx-lm"), claim("cache_bytes", "dflash")]
    claims += [
        claim(name, "dflash")
        for name in ("accept_length", "accept_rate", "decode_tok_s", "identical_outputs")
    ]
    return timed(restate(envelope(
        kind, config={"seed": 0, "temperature": 0.0, "max_tokens": TOKENS, "block_size": 8, **ASKED}, models=[MODEL],
        workloads={"code": CODE}, prompts=prompts, arms=SPEC_ARMS, rows=rows, claims=claims,
    )))  # fmt: skip


def acceptance() -> Report:
    made = spec_bench("kakeya.acceptance")
    made["claims"] = [made_claim for made_claim in made["claims"] if made_claim["name"].startswith("accept")]
    return made


def native() -> Report:
    made = spec_bench("kakeya.native")
    made["arms"] = made["arms"][:2]
    made["rows"] = [row for row in made["rows"] if row["arm"] != "dflash"]
    made["claims"] = [claim("decode_tok_s", "mlx-lm"), claim("cache_bytes", "mlx-lm")]
    return timed(restate(made))


QUESTION = "\nQuestion: what is the secret code? Answer:"
NEEDLES = ("PINE-4821", "OAK-1177", "MAPLE-9023", "BIRCH-5560", "ORCHID-3389", "ZETA-7702")


def recall(kind: str = "kakeya.recall") -> Report:
    clock = Clock()
    prompts = [
        prompt(
            f"needle-{i}", "needles", f"{i} notes.\nIMPORTANT: the secret code is {code}.\nMore notes {i}.{QUESTION}",
            expected=code, length=32, depth=0.3,
        )
        for i, code in enumerate(NEEDLES)
    ]  # fmt: skip
    caches = {"mlx-lm": "raw", "e8": "e8v@4.25", "same": "roundtrip", "noise": "noise"}
    arms = [
        arm(name, role, caches[name], oracle=None if role == "baseline" else "mlx-lm")
        for name, role in zip(caches, ("baseline", "candidate", "identity", "poison"), strict=True)
    ]
    rows = []
    for i, asked in enumerate(prompts):
        for name in caches:
            tokens = answer_of(FIRST_CODE + i if name != "noise" else END + 1 + i)
            went_in = LAYERS * (asked["n_tokens"] + len(tokens) - 1)
            fields: Report = {} if name == "mlx-lm" else {"counters": {"injected_positions": went_in}}
            held = memory(100, dtype="uint32", width=16) if name == "e8" else memory(100)
            fields |= {"tokens": tokens, "memory": held, "stop": "eos"}
            rows.append(decode(clock, name, asked["id"], 0, 25.0, **fields))
    claims = [claim("recall", name) for name in ("mlx-lm", "e8")] + [claim("recall_delta", "e8", "mlx-lm")]
    told = {"task": "recall", "source": "generated", "chat_template": False, "shared_suffix": f".{QUESTION}"}
    return timed(restate(envelope(
        kind, config={
            "seed": 42, "temperature": 0.0, "max_tokens": 64, "caches": ["e8v@4.25"], "lengths": [32], "depths": [0.3],
            "samples": len(NEEDLES),
        }, models=[MODEL], workloads={"needles": told},
        prompts=prompts, arms=arms, rows=rows, claims=[*claims, claim("memory_saving", "e8", "mlx-lm")],
    )))  # fmt: skip


def answer_of(first: int) -> list[int]:
    """An answer that begins with a token."""
    return [first, *tokens_of(f"answer {first}")[:7], END]


def restored_prefill() -> Report:
    made = recall("kakeya.restored-prefill")
    clock = Clock()
    clock.dice.seed(8)
    made["arms"].append(arm("nothing", "evicted", oracle="mlx-lm"))
    made["rows"] += [
        decode(
            clock, "nothing", asked["id"], 0, 25.0, tokens=answer_of(END + 100 + i), stop="eos", memory=memory(100)
        )
        for i, asked in enumerate(made["prompts"])
    ]  # fmt: skip
    return timed(made)


def verify_l() -> Report:
    clock = Clock()
    cost = {1: 0.047, 2: 0.088, 4: 0.112, 8: 0.143}
    rows = [
        {"length": length, "context": 4096, "cache": "raw", "repeat": repeat, "seconds": clock.about(seconds)}
        for repeat in range(5)
        for length, seconds in cost.items()
    ]
    claims = [claim("verify_ms", length=8, context=4096), claim("verify_ratio", length=8, context=4096)]
    config = {"seed": 0, "cache": "raw", "lengths": [*cost], "contexts": [4096], "repeats": 5}
    return restate(envelope("kakeya.verify-l", config=config, models=[MODEL], rows=rows, claims=claims))


def serve_conformance() -> Report:
    """Two drafters' worth of cells, each with the tokens that its question gives."""
    config = {
        "seed": 0, "drafts": ["none", "lookup"], "cache": "e8v@4.25", "caches": ["raw", "e8v@4.25"],
        "warm": [False, True], "clients": [1, 2], "forms": ["free", "json_schema"], "max_tokens": 32,
    }  # fmt: skip
    cells = [
        (draft, cache, warm, clients, form)
        for draft in config["drafts"] for cache in config["caches"] for warm in config["warm"]
        for clients in config["clients"] for form in config["forms"]
    ]  # fmt: skip
    rows = []
    for draft, cache, warm, clients, form in cells:
        oracle = draft == "none" and not warm and clients == 1
        for question in range(2 if oracle else clients):
            text = (
                f'{{"path":"{cache}{question}","lines":1}}'
                if form == "json_schema"
                else f"x {cache} {question}"
            )
            counters = {
                "rounds": 9 * (draft != "none"), "proposed": 20 * (draft != "none"),
                "accepted": 11 * (draft != "none"), "cached_tokens": 64 * warm,
                "cache_bytes": 4096 if cache == "raw" else 1024, "together": clients,
                "joint_rounds": 5 * (clients > 1),
            }  # fmt: skip
            rows.append({
                "draft": draft, "cache": cache, "warm": warm, "clients": clients, "form": form, "question": question,
                "tokens": digest(text), "n_tokens": 32 if form == "free" else 24, "text": text,
                "stop": "length" if form == "free" else "stop", "fallback": None, "counters": counters,
            })  # fmt: skip
    return envelope("kakeya.serve-conformance", config=config, models=[MODEL], rows=rows, claims=[])


def kv_quant() -> Report:
    texts = (
        "It was late when the last of them came up the hill and saw the lamp.",
        "There is a house by the river which nobody has lived in for years.",
        "On Monday they went to the market, and on Tuesday they stayed away",
    )
    prompts = [prompt(f"prose-{i}", "prose", text, n_tokens=50) for i, text in enumerate(texts)]
    told = {"task": "prose", "source": "our own", "chat_template": False}
    errors = {"raw": (64, 0.0, 0.0), "affine": (18, 1.5, 0.4), "e8": (35, 0.9, 0.2)}
    caches = {"raw": "raw", "affine": "affine@4g64", "e8": "e8v@4.25"}
    rows = [
        {
            "arm": name, "prompt": asked["id"], "n_values": 12_800, "sum_squares": 100.0 + i, "n_positions": 49,
            "sum_squared_error": error, "sum_kl": kl, "same_top": 49 if name == "raw" else 47, "sum_nll": 60 + kl + i,
            "memory": memory(50, layers=1, width=width, dtype="uint8" if name == "e8" else "bfloat16"),
        }
        for i, asked in enumerate(prompts)
        for name, (width, error, kl) in errors.items()
    ]  # fmt: skip
    names = ("stored_bits_per_value", "rel_mse", "kl", "same_top", "perplexity")
    claims = [claim(name, "e8") for name in names]
    claims += [claim(name, "e8", "affine") for name in ("rel_mse_ratio", "kl_ratio")]
    return restate(envelope(
        "kakeya.kv-quant", config={"seed": 0, "caches": ["affine@4g64", "e8v@4.25"], "tokens": 512},
        models=[MODEL], workloads={"prose": told}, prompts=prompts, rows=rows,
        arms=[arm(n, "baseline" if n == "raw" else "candidate", cache) for n, cache in caches.items()], claims=claims,
    ))  # fmt: skip


def parity() -> Report:
    prompts = [prompt(f"code-{i}", "code", text) for i, text in enumerate(CODE_TEXTS)]
    rows = [
        {"prompt": asked["id"], "block": block, "reference": drafts, "candidate": drafts}
        for asked in prompts
        for block in range(4)
        for drafts in [tokens_of(f"{asked['id']} {block}")[:7]]
    ]
    arms = [arm("package", "reference", loop="dflash"), arm("ours", "candidate")]
    return restate(envelope(
        "kakeya.parity", config={"seed": 1234, "blocks": 4, "block_size": 8, "max_prompts": 4},
        models=[MODEL, model("draft")], workloads={"code": CODE},
        prompts=prompts, arms=arms, rows=rows, claims=[claim("agreement")],
    ))  # fmt: skip


def codec_rd() -> Report:
    row = {
        "codec": "affine", "bits": 2, "group": 64, "rotated": False, "distribution": "gaussian", "n_vectors": 64,
        "stored_bits_per_value": 2.5, "rel_mse": 0.156, "rel_mse_stderr": 0.0055, "limit": 0.03125,
    }  # fmt: skip
    rows = [row, {**row, "distribution": "t4", "rel_mse": 0.22}]
    config = {
        "n_vectors": 64,
        "dim": 64,
        "seed": 0,
        "codecs": [],
        "bits": [2],
        "groups": [64],
        "distributions": [],
    }
    return envelope("kakeya.codec-rd", config=config, rows=rows, claims=[])


def legacy() -> Report:
    """The older format, with what it lacks: who measured, and in which order."""
    counts = [64, 64, 64, 64, 64]
    texts = [f" {code}.<turn|> and then some" for code in NEEDLES[:5]]
    arms = {}
    for at, rate in ((0, 22.2), (1, 22.8)):
        seconds = [n / (rate * (1 + 0.01 * i)) for i, n in enumerate(counts)]
        rows = [
            {
                "sample": i,
                "restoration_active": True,
                "prefill_s": 20.0 + i,
                "decode_s": s,
                "order": 2 * i + at,
            }
            for i, s in enumerate(seconds)
        ]
        arms[at] = {
            "tokens_per_second": sum(counts) / (sum(seconds) + 110), "decode_loop": "generate_step",
            "timing_scope": "e2e_prefill_plus_decode", "eval_mode": "free_gen_incremental", "stage_timings": rows,
        }  # fmt: skip
    samples = {
        "per_sample_decoded": texts,
        "per_sample_correct": [True] * 5,
        "per_sample_decode_tokens": counts,
    }
    held = {"k3_cross_model": memory(1024), "oracle": memory(4096)}
    made = {
        "schema_version": 2, "kind": "k3_integrated_niah_acceptance_mac", "config": {"n_samples": 5, "seed": 42},
        "results": {"k3_cross_model": samples, "oracle": samples},
        "gate": {"recall_cross_model": 1.0, "recall_oracle": 1.0, "evidence_violations": []},
        "memory": {"s5": {"formula_matches_run": True}, "savings_vs_naive_pct": 75.0, "live": held},
        "throughput": {"k3_cross_model": arms[0], "oracle_native_ar": arms[1], "decode_only": {"speedup": 0.0}},
        "identity": IDENTITY, "models": [MODEL],
    }  # fmt: skip
    return restate_legacy(copy(made))


def restate_legacy(made: Report) -> Report:
    """Take the quotients of an older report again."""
    times = made["throughput"]
    pace, rates = [], []
    for name, other in (("k3_cross_model", "k3_cross_model"), ("oracle_native_ar", "oracle")):
        counts = made["results"][other]["per_sample_decode_tokens"]
        rows = times[name]["stage_timings"]
        rates.append(statistics.median(n / row["decode_s"] for n, row in zip(counts, rows, strict=True)))
        pace.append(times[name]["tokens_per_second"])
    times["decode_only"]["speedup"] = rates[0] / rates[1]
    times["cross_model_speedup_vs_oracle_ar"] = pace[0] / pace[1]
    return made


def timed(made: Report) -> Report:
    """Let a run take as long as its rows, and a little."""
    made["seconds"] = 1.25 * sum(row.get("e2e_s", row.get("seconds", 1.0)) for row in made["rows"])
    return made


def restate(made: Report) -> Report:
    """Take every claim again from the rows."""
    for one in made["claims"]:
        formula = FORMULAS.get(one["name"])
        value = formula(made, one) if formula else one["value"]
        one["value"], interval = value if isinstance(value, tuple) else (value, None)
        if interval:
            one["interval"] = interval
    return made


def _asked(made: Report, one: Report) -> list[str]:
    where = one.get("where", {})
    named = {"workload": "workload", "prompt": "id", "length": "length", "depth": "depth"}
    ids = [p["id"] for p in made["prompts"] if all(p.get(named[k]) == v for k, v in where.items())]
    arms = [one[key] for key in ("arm", "against") if key in one]
    ran = {(row["arm"], row["prompt"]) for row in made["rows"]}
    return [name for name in ids if all((who, name) in ran for who in arms)]


def _by_prompt(made: Report, one: Report, arm: str, of: Callable[[Report], float]) -> list[float]:
    return [
        statistics.median(
            of(row) for row in made["rows"]
            if row["arm"] == one[arm] and row["prompt"] == name and not row.get("warmup")
        )
        for name in _asked(made, one)
    ]  # fmt: skip


def _over(made: Report, one: Report, of: Callable[[Report], float]) -> list[float]:
    pairs = zip(_by_prompt(made, one, "arm", of), _by_prompt(made, one, "against", of), strict=True)
    return [a / b for a, b in pairs]


def _middle(values: list[float]) -> tuple[float, list[float]]:
    return statistics.median(values), [min(values), max(values)]


def _rate(row: Report) -> float:
    return row["decode_tokens"] / row["decode_s"]


def _rows(made: Report, one: Report, arm: str = "arm") -> list[Report]:
    return [row for row in made["rows"] if row["arm"] == one.get(arm) and row["prompt"] in _asked(made, one)]


def _ratio(top: str, bottom: str) -> Callable[..., float]:
    def take(made: Report, one: Report, arm: str = "arm") -> float:
        rows = _rows(made, one, arm)
        return sum(_sum(row[top]) for row in rows) / sum(_sum(row[bottom]) for row in rows)

    return take


def _sum(value: Any) -> float:
    return sum(value) if isinstance(value, list) else value


def _hits(made: Report, one: Report, arm: str = "arm") -> float:
    answers = {p["id"]: p.get("expected") or "\0" for p in made["prompts"]}
    found = [answers[row["prompt"]] in row["text"] for row in _rows(made, one, arm)]
    return sum(found) / len(found)


def exact(hits: int, trials: int) -> list[float]:
    """The two-sided 95 % interval of a share, by summing binomial terms as they stand in textbooks."""

    def most(k: int, p: float) -> float:
        return sum(math.comb(trials, i) * p**i * (1 - p) ** (trials - i) for i in range(k + 1))

    def where(low: float, high: float, holds: Callable[[float], bool]) -> float:
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if holds(middle) else (low, middle)
        return low

    least = where(0.0, 1.0, lambda p: 1 - most(hits - 1, p) < 0.025) if hits else 0.0
    return [least, where(0.0, 1.0, lambda p: most(hits, p) > 0.025) if hits < trials else 1.0]


def _verify(made: Report, one: Report, length: int | None = None) -> float:
    wanted = length or one["where"]["length"]
    return statistics.median(row["seconds"] for row in made["rows"] if row["length"] == wanted)


def _agree(made: Report, _: Report) -> tuple[float, list[float]]:
    pairs = [a == b for row in made["rows"] for a, b in zip(row["reference"], row["candidate"], strict=False)]
    return sum(pairs) / len(pairs), exact(sum(pairs), len(pairs))


def _same(made: Report, one: Report) -> float:
    plain = {row["prompt"]: row["tokens"] for row in reversed(made["rows"]) if row["arm"] == "mlx-lm"}
    names = _asked(made, one)
    wrong = {row["prompt"] for row in _rows(made, one) if row["tokens"] != plain.get(row["prompt"])}
    return 1 - len(wrong & set(names)) / len(names)


def _prompt_kl(made: Report, one: Report) -> tuple[float, list[float]]:
    rows = [row for row in _rows(made, one) if not row.get("warmup") and row.get("prediction")]
    sums: dict[str, list[float]] = {}
    for row in rows:
        for name in (row["prompt"], ""):
            total = sums.setdefault(name, [0.0, 0.0])
            total[0] += row["prediction"]["sum_kl"]
            total[1] += row["prediction"]["n_positions"]
    means = {name: kl / count for name, (kl, count) in sums.items()}
    whole = means.pop("")
    return whole, [min(means.values()), max(means.values())]


FORMULAS: dict[str, Callable[[Report, Report], Any]] = {
    "decode_tok_s": lambda r, c: _middle(_by_prompt(r, c, "arm", _rate)),
    "decode_speedup": lambda r, c: _middle(_over(r, c, _rate)),
    "decode_ratio": lambda r, c: _middle(_over(r, c, _rate)),
    "worst_speedup": lambda r, c: min(_over(r, c, _rate)),
    "e2e_speedup": lambda r, c: _middle(_over(r, c, lambda row: len(row["tokens"]) / row["e2e_s"])),
    "accept_length": lambda r, c: sum(map(sum, (row["commits"] for row in _rows(r, c))))
    / sum(len(row["commits"]) for row in _rows(r, c)),
    "accept_rate": _ratio("accepted", "drafted"),
    "identical_outputs": _same,
    "recall": lambda r, c: (_hits(r, c), exact(round(_hits(r, c) * len(_rows(r, c))), len(_rows(r, c)))),
    "recall_delta": lambda r, c: _hits(r, c) - _hits(r, c, "against"),
    "cache_bytes": lambda r, c: max(row["memory"]["cache_bytes"] for row in _rows(r, c)),
    "memory_saving": lambda r, c: 1 - statistics.median(_over(r, c, lambda row: row["memory"]["cache_bytes"])),
    "verify_ms": lambda r, c: 1000 * _verify(r, c),
    "verify_ratio": lambda r, c: _verify(r, c) / _verify(r, c, 1),
    "stored_bits_per_value": lambda r, c: 8 * sum(row["memory"]["cache_bytes"] for row in _rows(r, c))
    / sum(row["n_values"] for row in _rows(r, c)),
    "rel_mse": _ratio("sum_squared_error", "sum_squares"),
    "kl": _ratio("sum_kl", "n_positions"),
    "same_top": _ratio("same_top", "n_positions"),
    "prompt_kl": _prompt_kl,
    "perplexity": lambda r, c: 2.718281828459045 ** _ratio("sum_nll", "n_positions")(r, c),
    "rel_mse_ratio": lambda r, c: _ratio("sum_squared_error", "sum_squares")(r, c)
    / _ratio("sum_squared_error", "sum_squares")(r, c, "against"),
    "kl_ratio": lambda r, c: _ratio("sum_kl", "n_positions")(r, c) / _ratio("sum_kl", "n_positions")(r, c, "against"),
    "agreement": _agree,
}  # fmt: skip

HONEST: dict[str, Callable[[], Report]] = {
    "kakeya.codec-rd": codec_rd,
    "kakeya.spec-bench": spec_bench,
    "kakeya.acceptance": acceptance,
    "kakeya.native": native,
    "kakeya.recall": recall,
    "kakeya.restored-prefill": restored_prefill,
    "kakeya.verify-l": verify_l,
    "kakeya.kv-quant": kv_quant,
    "kakeya.parity": parity,
    "kakeya.serve-conformance": serve_conformance,
    "k3_integrated_niah_acceptance_mac": legacy,
}
