"""Small honest reports of every kind, built anew for each caller, and the runs that vouch for them."""

from __future__ import annotations

import gzip
import hashlib
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bridge.gate import RunBinding, run_id
from bridge.reports import SCHEMA_VERSION, digests, kinds
from bridge.reports.claims import derive_claims
from bridge.reports.claims.compare import schedule

Report = dict[str, Any]

REAL = Path(__file__).with_name("real")
REPEATS, TOKENS, LAYERS = 3, 41, 2
END, FIRST_CODE = 2, 1000  # the token that ends an answer, and the first of those that stand for a needle
MEMORY_BYTES = 16 << 30

RUN = run_id("mac-bridge/job-1", "c" * 40, 1)
BEGAN = datetime(2026, 1, 31, 11, 50, tzinfo=UTC)
CREATED = "2026-01-31T12:00:00Z"
ENDED = BEGAN + timedelta(minutes=15)


def digest(text: str) -> str:
    """Return the digest of a text as reports write it."""
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


IDENTITY = {
    "host": "a-machine", "os": "an-os", "chip": "a-chip", "device": "cpu", "versions": {"mlx": "0.32.4"},
    "blas": {"name": "openblas"}, "load": [0.1], "power": {"plugged": True}, "modified": [], "cores": 8,
    "memory_bytes": MEMORY_BYTES,
    "code": {"version": "0.1.0", "digest": digest("sources"), "commit": "a" * 40, "dirty": False},
}  # fmt: skip


def copy(value: Any) -> Any:
    """Return a copy of which no part is shared, as if read from a file."""
    return json.loads(json.dumps(value))


def model(role: str = "target", **fields: Any) -> Report:
    """Return a model that no list knows."""
    parts = {name: digest(f"{name} of {role}") for name in ("weights", "config", "tokenizer")}
    return {"role": role, "id": "small", "dtype": "bfloat16", **parts, **fields}


def prompt(name: str, workload: str, text: str, **fields: Any) -> Report:
    """Return a prompt."""
    size = 3 + len(text) // 4
    return {"id": name, "workload": workload, "sha256": digest(text), "n_tokens": size, "text": text} | fields


def arm(name: str, role: str, cache: str = "raw", **fields: Any) -> Report:
    """Return an arm with the loop of its role."""
    loops = {"baseline": kinds.STOCK_LOOP, "verify1": "engine.one_pass", "candidate": "engine.dflash"}
    fields = {"loop": loops.get(role, "engine.restore"), "patches": [], "options": {}} | fields
    return {"name": name, "role": role, "cache": cache, **fields}


def memory(positions: int, layers: int = LAYERS, dtype: str = "bfloat16", width: int = 64) -> Report:
    """Return the live arrays of a cache."""
    size = {"bfloat16": 2, "uint32": 4, "uint8": 1}[dtype]
    arrays = [{"shape": [1, 2, positions, width], "dtype": dtype}] * 2
    layer = {"kind": "KVCache", "nbytes": 4 * positions * width * size, "arrays": arrays}
    return {"counted": "live_arrays", "cache_bytes": layers * layer["nbytes"], "layers": [layer] * layers}


def tokens_of(name: str, length: int = TOKENS) -> list[int]:
    """Return tokens that only this name has."""
    dice = random.Random(name)
    return [dice.randrange(END + 1, FIRST_CODE) for _ in range(length)]


def text_of(tokens: list[int]) -> str:
    """Return what tokens stand for: a word each, or a needle."""
    return "".join(f" {NEEDLES[t - FIRST_CODE]}." if t >= FIRST_CODE else f" w{t:x}" for t in tokens)


class Clock:
    """Times of rows that follow each other, a few per cent around what is asked for."""

    def __init__(self) -> None:
        self._dice = random.Random(7)
        self.now = 0.0

    def about(self, seconds: float) -> float:
        """Return a duration near ``seconds``."""
        return seconds * (1 + 0.04 * (self._dice.random() - 0.5))

    def pass_by(self, seconds: float) -> float:
        """Return when something starts that takes so long."""
        start = self.now
        self.now += seconds + 0.001
        return start


def decode(clock: Clock, name: str, prompt_id: str, repeat: int, rate: float, **fields: Any) -> Report:
    """Return a row of an arm that decodes ``rate`` tokens a second."""
    tokens = fields.pop("tokens", None) or tokens_of(prompt_id)
    prefill, decoding = clock.about(0.2), clock.about((len(tokens) - 1) / rate)
    whole = prefill + decoding
    return {
        "arm": name, "prompt": prompt_id, "repeat": repeat, "prefill_s": prefill, "decode_s": decoding,
        "decode_tokens": len(tokens) - 1, "e2e_s": whole, "tokens": tokens, "text": text_of(tokens), "stop": "length",
        "started_s": clock.pass_by(whole), "counters": {}, **fields,
    }  # fmt: skip


def complete(kind: str, **fields: Any) -> Report:
    """Return a report with its time and the claims that its rows allow."""
    header = {"kind": kind, "schema_version": SCHEMA_VERSION, "created_at": CREATED, "identity": IDENTITY}
    seconds = 1.0 + sum(row.get("e2e_s", row.get("seconds", 0)) + 0.001 for row in fields["rows"])
    return derived(copy({**header, **fields, "seconds": seconds}))


def derived(report: Report) -> Report:
    """Return a report with its claims derived again."""
    return report | {"claims": copy(derive_claims(report))}


CODE = {"task": "code", "source": "our own", "chat_template": False}
TEXTS = (
    "Write a queue with two stacks.",
    "def merge(a, b):",
    "Sort a linked list in place",
    "class Ring:\n    ",
)
RATES = {"mlx-lm": 25.0, "one-pass": 23.0, "dflash": 50.0}


def spec_bench(kind: str = kinds.SPEC_BENCH, texts: tuple[str, ...] = TEXTS) -> Report:
    """Return a report of three arms: stock mlx-lm, one forward pass a token, and drafts by a model."""
    clock = Clock()
    prompts = [prompt(f"code-{i}", "code", text) for i, text in enumerate(texts)]
    rounds = (TOKENS - 1) // 4
    drafted = {"commits": [4] * rounds, "drafted": [7] * rounds, "accepted": [3] * rounds}
    counted: dict[str, Any] = {"dflash": drafted | {"counters": {"rounds_dflash": rounds}}}
    rows = [
        decode(clock, name, asked["id"], repeat, rate, memory=memory(300), **counted.get(name, {}))
        for asked in prompts for repeat in range(REPEATS) for name, rate in RATES.items()
    ]  # fmt: skip
    rows.append(decode(clock, "mlx-lm", prompts[0]["id"], REPEATS, 25.0, memory=memory(300), warmup=True))
    arms = [
        arm("mlx-lm", "baseline"),
        arm("one-pass", "verify1"),
        arm("dflash", "candidate", oracle="mlx-lm"),
    ]
    config = {
        "seed": 0, "temperature": 0.0, "max_tokens": TOKENS, "block_size": 8, "repeats": REPEATS, "model": "small",
    }  # fmt: skip
    return complete(
        kind, config=config, models=[model(), model("draft")], workloads={"code": CODE}, prompts=prompts, arms=arms,
        rows=rows,
    )  # fmt: skip


def acceptance() -> Report:
    """Return a report of accepted drafts."""
    return spec_bench(kinds.ACCEPTANCE)


def native() -> Report:
    """Return a report of plain decoding."""
    report = spec_bench(kinds.NATIVE)
    report["arms"], report["models"] = report["arms"][:2], report["models"][:1]
    report["rows"] = [row for row in report["rows"] if row["arm"] != "dflash"]
    return derived(report)


QUESTION = "\nQuestion: what is the secret code? Answer:"
NEEDLES = ("PINE-4821", "OAK-1177", "MAPLE-9023", "BIRCH-5560", "ORCHID-3389", "ZETA-7702")
_ROLES = {"e8": "candidate", "same": "identity", "noise": "poison", "nothing": "evicted"}


def recall(kind: str = kinds.RECALL) -> Report:
    """Return a report of six needles: a raw cache, a codec, and the controls."""
    clock = Clock()
    prompts = [
        prompt(
            f"needle-{i}", "needles", f"{i} notes.\nIMPORTANT: the secret code is {code}.\nMore notes {i}.{QUESTION}",
            expected=code, length=32, depth=0.3,
        )
        for i, code in enumerate(NEEDLES)
    ]  # fmt: skip
    caches = {"mlx-lm": "raw", "e8": "e8v@4.25", "same": "roundtrip", "noise": "noise"}
    caches |= {"nothing": "none"} if kind == kinds.RESTORED else {}
    arms = [arm("mlx-lm", "baseline")]
    arms += [
        arm(name, role, caches[name], oracle="mlx-lm") for name, role in _ROLES.items() if name in caches
    ]
    rows = []
    for i, asked in enumerate(prompts):
        for name in caches:
            first = END + 1 + i if name in ("noise", "nothing") else FIRST_CODE + i
            tokens = [first, *tokens_of(f"answer {first}", 7), END]
            injected = LAYERS * (asked["n_tokens"] + len(tokens) - 1)
            counters = {} if name in ("mlx-lm", "nothing") else {"injected_positions": injected}
            cache = memory(100, dtype="uint32", width=16) if name == "e8" else memory(100)
            more = {"tokens": tokens, "memory": cache, "stop": "eos", "counters": counters}
            rows.append(decode(clock, name, asked["id"], 0, 25.0, **more))
    config = {
        "seed": 42, "temperature": 0.0, "max_tokens": 64, "caches": ["e8v@4.25"], "lengths": [32], "depths": [0.3],
        "samples": len(NEEDLES),
    }  # fmt: skip
    workload = CODE | {"task": "recall", "source": "generated", "shared_suffix": f".{QUESTION}"}
    return complete(
        kind, config=config, models=[model()], workloads={"needles": workload}, prompts=prompts, arms=arms, rows=rows,
    )  # fmt: skip


def restored_prefill() -> Report:
    """Return a report of evicted positions that were restored."""
    return recall(kinds.RESTORED)


def verify_l() -> Report:
    """Return a report of forward passes over 1 to 8 tokens."""
    clock = Clock()
    rows = []
    for repeat in range(5):
        for length, cost in {1: 0.047, 2: 0.088, 4: 0.112, 8: 0.143}.items():
            seconds = clock.about(cost)
            row = {"length": length, "context": 4096, "cache": "raw", "repeat": repeat, "seconds": seconds}
            rows.append(row | {"counters": {}, "started_s": clock.pass_by(seconds)})
    config = {"seed": 0, "cache": "raw", "lengths": [1, 2, 4, 8], "contexts": [4096], "repeats": 5}
    return complete(kinds.VERIFY_L, config=config, models=[model()], rows=rows)


def serve_conformance() -> Report:
    """Return the server's answers in 32 cells."""
    config: Report = {
        "seed": 0, "drafts": ["none", "lookup"], "cache": "e8v@4.25", "caches": ["raw", "e8v@4.25"],
        "warm": [False, True], "clients": [1, 2], "forms": ["free", "json_schema"], "max_tokens": 32,
    }  # fmt: skip
    rows = []
    for draft, cache, warm, clients, form in (
        (draft, cache, warm, clients, form)
        for draft in config["drafts"] for cache in config["caches"] for warm in config["warm"]
        for clients in config["clients"] for form in config["forms"]
    ):  # fmt: skip
        is_oracle, is_free = draft == "none" and not warm and clients == 1, form == "free"
        for question in range(2 if is_oracle else clients):
            text = f"x {cache} {question}" if is_free else f'{{"path":"{cache}{question}","lines":1}}'
            counters = {
                "rounds": 9 * (draft != "none"), "proposed": 20 * (draft != "none"), "accepted": 11 * (draft != "none"),
                "cached_tokens": 64 * warm, "cache_bytes": 4096 if cache == "raw" else 1024, "together": clients,
            }  # fmt: skip
            rows.append({
                "draft": draft, "cache": cache, "warm": warm, "clients": clients, "form": form, "question": question,
                "tokens": digest(text), "n_tokens": 32 if is_free else 24, "text": text,
                "stop": "length" if is_free else "stop", "fallback": None, "counters": counters,
            })  # fmt: skip
    return complete(kinds.SERVE, config=config, models=[model()], rows=rows)


def kv_quant() -> Report:
    """Return a report of two codecs beside the raw cache."""
    texts = (
        "It was late when the last of them came up the hill and saw the lamp.",
        "There is a house by the river which nobody has lived in for years.",
        "On Monday they went to the market, and on Tuesday they stayed away",
    )
    prompts = [prompt(f"prose-{i}", "prose", text, n_tokens=50) for i, text in enumerate(texts)]
    arms = [
        arm("raw", "baseline"), arm("affine", "candidate", "affine@4g64"), arm("e8", "candidate", "e8v@4.25"),
    ]  # fmt: skip
    rows = [
        {
            "arm": name, "prompt": asked["id"], "n_values": 12_800, "sum_squares": 100.0 + i, "n_positions": 49,
            "sum_squared_error": error, "sum_kl": kl, "same_top": 49 if name == "raw" else 47, "sum_nll": 60 + kl + i,
            "memory": memory(50, layers=1, width=width, dtype="uint8" if name == "e8" else "bfloat16"), "counters": {},
        }
        for i, asked in enumerate(prompts)
        for name, width, error, kl in (("raw", 64, 0.0, 0.0), ("affine", 18, 1.5, 0.4), ("e8", 35, 0.9, 0.2))
    ]  # fmt: skip
    return complete(
        kinds.KV_QUANT, config={"seed": 0, "caches": ["affine@4g64", "e8v@4.25"], "tokens": 512}, models=[model()],
        workloads={"prose": CODE | {"task": "prose"}}, prompts=prompts, arms=arms, rows=rows,
    )  # fmt: skip


def parity() -> Report:
    """Return a report of two drafters that agree."""
    prompts = [prompt(f"code-{i}", "code", text) for i, text in enumerate(TEXTS)]
    rows = [
        {"prompt": asked["id"], "block": block, "reference": drafts, "candidate": drafts}
        for asked in prompts for block in range(4) for drafts in [tokens_of(f"{asked['id']} {block}", 7)]
    ]  # fmt: skip
    return complete(
        kinds.PARITY, config={"seed": 1234, "blocks": 4, "block_size": 8, "max_prompts": 4},
        models=[model(), model("draft")], workloads={"code": CODE}, prompts=prompts,
        arms=[arm("package", "reference", loop="dflash"), arm("ours", "candidate")], rows=rows,
    )  # fmt: skip


def torch_parity() -> Report:
    """Return a report of MLX and torch over the raw cache and one codec."""
    clock = Clock()
    prompts = [prompt(f"code-{i}", "code", text) for i, text in enumerate(TEXTS[:2])]
    rates = {"mlx/raw": 25.0, "torch/raw": 27.0, "mlx/e8v@4.25": 20.0, "torch/e8v@4.25": 15.0}
    rows = []
    for repeat in range(REPEATS + 1):
        for asked in prompts:
            for name, rate in rates.items():
                packed = not name.endswith("raw")
                cache = memory(300, dtype="uint8", width=35) if packed else memory(300)
                counters = {"packed_layers": LAYERS * packed, "live_bytes": cache["cache_bytes"]}
                row = decode(clock, name, asked["id"], repeat, rate, memory=cache, counters=counters)
                steps = row["decode_tokens"]
                row |= {"step_s": [row["decode_s"] / steps] * steps, "processor_s": row["decode_s"] * 0.9}
                row |= {"warmup": repeat == 0, "process_peak_bytes": 1 << 30}
                if repeat == 1 and packed:
                    row["codes"] = [digest(f"{asked['id']} {i}")[7:23] for i in range(8)]
                if repeat == 1 and name != "mlx/raw":
                    row["prediction"] = {
                        "n_positions": TOKENS,
                        "sum_kl": 0.5 * packed,
                        "same_top": TOKENS - packed,
                    }
                rows.append(row)
    arms = [
        arm(name, "reference" if name.startswith("mlx") else "candidate", name.split("/")[1],
            loop=name.split("/")[0], oracle="mlx/raw" if name == "torch/raw" else None)
        for name in rates
    ]  # fmt: skip
    about = {
        "device": "cpu",
        "dtype": "float32",
        "blas": "openblas",
        "versions": {"mlx": "0.32.4"},
        "threads": 1,
    }
    config = {
        "seed": 0, "temperature": 0.0, "max_tokens": TOKENS, "repeats": REPEATS, "model": "small",
        "caches": ["e8v@4.25"], "left_out": {},
    }  # fmt: skip
    return complete(
        kinds.TORCH_PARITY, config=config, models=[model(dtype="float32")], workloads={"code": CODE},
        prompts=prompts, arms=arms, rows=rows, backends={"mlx": about, "torch": about | {"blas": "mkl"}},
    )  # fmt: skip


def compare(change: float = 1.0, noise: float = 0.02, rounds: int = 10, **config: Any) -> Report:
    """Return a comparison of two trees, of which the candidate takes ``change`` times as long."""
    dice = random.Random(1)
    rows = [
        {"round": slot.round, "position": slot.position, "arm": slot.arm, "warmup": slot.warmup,
         "value": (change if slot.arm == "candidate" else 1.0) * dice.lognormvariate(0, noise)}
        for slot in schedule(rounds)
    ]  # fmt: skip
    trees = {
        arm: {"commit": digit * 40, "tree": digit * 40}
        for arm, digit in (("candidate", "d"), ("baseline", "e"))
    }
    about = {
        "preset": "time-it",
        "measure": "wall",
        "unit": "s",
        "better": "lower",
        "rounds": rounds,
        **trees,
    }
    report = complete(
        kinds.COMPARE, host={"memory_bytes": MEMORY_BYTES}, load=[0.1], config=about | config, rows=rows
    )
    del report["identity"]
    return report | {"seconds": 1.0 + sum(row["value"] for row in rows)}


def pass_at_1() -> Report:
    """Return a report of four problems: plain and drafted decoding, and the controls."""
    prompts = [prompt(f"problem-{i}", "problems", text) for i, text in enumerate(TEXTS)]
    arms = [
        arm("plain raw", "baseline"), arm("drafted raw", "candidate", oracle="plain raw"),
        arm("canonical", "identity"), arm("empty", "poison"),
    ]  # fmt: skip
    rounds = {"commits": [4] * 10, "drafted": [7] * 10, "accepted": [3] * 10}
    rows = []
    for i, asked in enumerate(prompts):
        tokens = tokens_of(asked["id"])
        solved = {"tokens": tokens, "text": text_of(tokens), "stop": "eos", "passed": i == 0}
        for name, row in {
            "plain raw": solved, "drafted raw": solved | rounds,
            "canonical": {"tokens": [], "text": "return 1", "stop": None, "passed": True},
            "empty": {"tokens": [], "text": "pass", "stop": None, "passed": False},
        }.items():  # fmt: skip
            error = None if row["passed"] else "AssertionError"
            rows.append({"arm": name, "prompt": asked["id"], "error": error, "counters": {}, **row})
    return complete(
        kinds.SOLUTIONS,
        config={"seed": 0, "temperature": 0.0, "max_tokens": 64, "caches": ["raw"], "model": "small"},
        models=[model()], workloads={"problems": CODE}, prompts=prompts, arms=arms, rows=rows,
    )  # fmt: skip


def codec_rd() -> Report:
    """Return a report of one code on two distributions."""
    row = {
        "codec": "affine", "bits": 2, "group": 64, "rotated": False, "distribution": "gaussian", "n_vectors": 64,
        "stored_bits_per_value": 2.5, "rel_mse": 0.156, "rel_mse_stderr": 0.0055, "limit": 0.03125,
    }  # fmt: skip
    config = {"n_vectors": 64, "dim": 64, "seed": 0, "bits": [2], "distributions": ["gaussian", "t4"]}
    return complete(kinds.CODEC_RD, config=config, rows=[row, row | {"distribution": "t4", "rel_mse": 0.22}])


def legacy() -> Report:
    """Return a report of the earlier system."""
    seconds = {"k3_cross_model": [2.5, 2.6, 2.7], "oracle": [2.0, 2.1, 2.2]}
    results = {
        name: {
            "per_sample_decoded": [f" {code}." for code in NEEDLES[:3]], "per_sample_correct": [True, True, False],
            "per_sample_decode_tokens": [64, 64, 64],
        }
        for name in seconds
    }  # fmt: skip
    timed = {
        name: {
            "tokens_per_second": 192 / sum(took),
            "stage_timings": [{"sample": i, "restoration_active": True, "decode_s": s} for i, s in enumerate(took)],
        }
        for name, took in seconds.items()
    }  # fmt: skip
    throughput = {
        "k3_cross_model": timed["k3_cross_model"], "oracle_native_ar": timed["oracle"],
        "cross_model_speedup_vs_oracle_ar": 6.3 / 7.8, "decode_only": {"speedup": 2.1 / 2.6},
    }  # fmt: skip
    return copy({
        "schema_version": 2, "kind": kinds.LEGACY, "results": results, "throughput": throughput,
        "gate": {"recall_cross_model": 2 / 3, "recall_oracle": 2 / 3},
    })  # fmt: skip


def all_reduce() -> Report:
    """Return sums over three ranks."""
    config: Report = {"backend": "ring", "ranks": 3, "sizes": [4096, 65536], "repeats": 3}
    rows = [
        {"bytes": size, "repeat": repeat, "rank_s": [size / 1e8] * 3, "least": [6.0] * 3, "most": [6.0] * 3}
        for size in config["sizes"]
        for repeat in range(3)
    ]
    return complete(kinds.ALL_REDUCE, config=config, rows=rows)


def distributed() -> Report:
    """Return two prompts on one host and on two ranks."""
    config: Report = {
        "seed": 0, "model": "small", "backend": "ring", "ranks": 2, "repeats": 1, "split": "tensor", "max_tokens": 8,
        "prompts": ["a", "b"],
    }  # fmt: skip
    tokens = {"a": [1, 2, 3], "b": [4, 5, 6]}
    rows = [
        {
            "rank": rank, "prompt": name, "repeat": 0, "tokens": None if rank == 1 else list(tokens[name]),
            "digest": f"sha256:{digests.tokens_digest(tokens[name])}", "n_tokens": 3, "stop": "stop", "prefill_s": 0.01,
            "decode_s": 0.02, "peak_bytes": 1000, "resident_bytes": 2000,
        }
        for rank in (None, 0, 1)
        for name in config["prompts"]
    ]  # fmt: skip
    return complete(kinds.DISTRIBUTED, config=config, models=[model()], rows=rows)


BUILDERS: dict[str, Callable[[], Report]] = {
    kinds.CODEC_RD: codec_rd, kinds.SPEC_BENCH: spec_bench, kinds.ACCEPTANCE: acceptance, kinds.NATIVE: native,
    kinds.RECALL: recall, kinds.RESTORED: restored_prefill, kinds.VERIFY_L: verify_l, kinds.KV_QUANT: kv_quant,
    kinds.PARITY: parity, kinds.SERVE: serve_conformance, kinds.SOLUTIONS: pass_at_1,
    kinds.TORCH_PARITY: torch_parity,
    kinds.ALL_REDUCE: all_reduce, kinds.DISTRIBUTED: distributed,
    kinds.LEGACY: legacy,
}  # fmt: skip


def real(name: str) -> Report:
    """Return a report that the engine measured."""
    report: Report = json.loads(gzip.decompress((REAL / f"{name}.json.gz").read_bytes()))
    return report


REAL_NAMES = tuple(sorted(file.name.removesuffix(".json.gz") for file in REAL.glob("*.json.gz")))


def log_lines(report: Report, every: int = 7) -> Iterator[str]:
    """Yield the lines that an engine prints while it measures a report, one for so many rows."""
    header, rows = digests.header_digest(report), report["rows"]
    short = header[: digests.ID_LENGTH]
    yield f"{digests.REPORT} {header}"
    for count, row_digest in enumerate(digests.row_digests(rows, header), 1):
        if count % every == 0 or count == len(rows):
            yield f"{digests.ROWS} {short} {count} {row_digest}"
    yield f"{digests.END} {short} {digests.report_digest(report)}"


def older_log_lines(report: Report) -> Iterator[str]:
    """Yield what an engine printed that did not yet cover the header."""
    for count, row_digest in enumerate(digests.row_digests(report["rows"]), 1):
        yield f"{digests.ROWS} {count} {row_digest}"


def as_log(*lines: str) -> bytes:
    """Return a job's log with these lines."""
    return "".join(f"{line}\n" for line in ("measuring", *lines)).encode()


def argv_of(report: Report) -> tuple[str, ...]:
    """Return the command line of a report's job."""
    if report["kind"] not in kinds.COMMANDS:
        return ("/bin/sh", "measure.sh")
    flags = [
        part for name, value in report["config"].items() if isinstance(value, int | float | str)
        for part in (f"--{name.replace('_', '-')}", str(value))
    ]  # fmt: skip
    return ("python", "-P", "-m", "engine", *kinds.COMMANDS[report["kind"]], *flags, "--out", "report.json")


def in_run(report: Report) -> Report:
    """Return a report as the job of ``RUN`` writes it."""
    seconds = min(report.get("seconds", 0.0), 800.0)
    return report | {"run": {"id": RUN}, "created_at": CREATED, "seconds": seconds}


def binding(*reports: Report, **fields: Any) -> RunBinding:
    """Return the run that measured reports, with its machine, its options and the log that the engine leaves."""
    log = as_log(*(line for report in reports for line in log_lines(report)))
    identity = reports[0].get("identity", IDENTITY)
    run = RunBinding(
        RUN, BEGAN, ENDED, {"memory_bytes": identity.get("memory_bytes")}, {"mlx": identity["versions"].get("mlx")},
        (log,), tuple(argv_of(report) for report in reports),
    )  # fmt: skip
    for report in reports:
        if report["kind"] == kinds.COMPARE:
            run = replace(
                run,
                comparison=digests.report_digest(report),
                workload=report["config"]["candidate"]["commit"],
            )
    return replace(run, **fields)


def vouched(report: Report, **fields: Any) -> tuple[Report, RunBinding]:
    """Return a report as its job writes it, and the run that vouches for it. ``fields`` change the run."""
    report = in_run(report)
    return report, binding(report, **fields)


def large_report(size: int = 4 << 20) -> bytes:
    """Return a real report that was made so large, with as many claims as it may have, each about all of its rows."""
    report = real("bench")
    rows, claims = report["rows"], report["claims"]
    times = size // len(json.dumps(rows))
    report["rows"] = [row | {"repeat": i * 100 + row["repeat"]} for i in range(times) for row in rows]
    report["claims"] = (claims * 200)[:200]
    return json.dumps(report).encode()
