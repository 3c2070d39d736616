"""Measures a cluster: sums over all ranks by size, and decoding with one model over several ranks beside one host."""

import gc
import time
from collections.abc import Callable, Sequence
from typing import Any

from bridge.reports import kinds
from bridge.reports.digests import tokens_digest
from engine.cluster import supervise
from engine.cluster.hosts import Cluster
from engine.cluster.state import Clocks
from engine.cluster.work import memory, prompt_ids
from engine.dflash.stops import ends_of
from engine.harness.prompt_sets import Prompt
from engine.harness.report import OpenReport
from engine.lm import generate_step
from engine.models import Pair, load
from engine.mx import mx

CHUNK = 512
Rows = list[dict[str, Any]]


def all_reduce(cluster: Cluster, sizes: Sequence[int], repeats: int, clocks: Clocks) -> dict[str, Any]:
    """Return the report of sums over all ranks."""
    began = time.monotonic()
    config = {
        "backend": cluster.hosts.backend,
        "ranks": len(cluster),
        "sizes": list(sizes),
        "repeats": repeats,
    }
    report = OpenReport(kinds.ALL_REDUCE, config)
    job = {"task": "all-reduce", "sizes": list(sizes), "repeats": repeats}
    by_rank = [end["rows"] for end in supervise.run(cluster, job, clocks).ranks]
    rows = [
        {
            "bytes": size,
            "repeat": repeat,
            "rank_s": [rank[i]["seconds"][repeat] for rank in by_rank],
            **{name: [rank[i][name] for rank in by_rank] for name in ("least", "most")},
        }
        for i, size in enumerate(sizes)
        for repeat in range(repeats)
    ]
    for row in rows:
        report.add(row)
    return report.close(rows, time.monotonic() - began)


def decoded(
    cluster: Cluster, model: str, job: dict[str, Any], prompts: Sequence[Prompt], repeats: int, clocks: Clocks,
    on_step: Callable[[], None],
) -> dict[str, Any]:  # fmt: skip
    """Return the report of decoding prompts greedily, on one host and then on the cluster."""
    began = time.monotonic()
    pair = load(model, False, dtype=job["dtype"])
    config = {
        "seed": 0, "model": pair.name, "backend": cluster.hosts.backend, "ranks": len(cluster), "repeats": repeats,
        "split": job["split"], "max_tokens": job["max_tokens"], "prompts": [prompt.id for prompt in prompts],
    }  # fmt: skip
    report = OpenReport(kinds.DISTRIBUTED, config, models=pair.describe())
    rows: Rows = []
    for prompt in prompts:
        rows.append(_on_one_host(pair, prompt, job["max_tokens"]))
        on_step()
    alone = {row["prompt"]: row["tokens"] for row in rows}
    for repeat in range(repeats):
        some = _on_ranks(cluster, job, prompts, repeat, clocks)
        for row in some:
            if row["rank"] == 0 and row["tokens"] != alone[row["prompt"]]:
                text = next(prompt.text for prompt in prompts if prompt.id == row["prompt"])
                row["divergence"] = _divergence(pair, text, row["tokens"], alone[row["prompt"]])
        rows += some
        on_step()
    for row in rows:
        report.add(row)
    return report.close(rows, time.monotonic() - began)


def _ids(pair: Pair, text: str) -> list[int]:
    folder = pair.parts["target"].folder
    return prompt_ids(pair.name, text, None, pair.tokenizer, folder, raw=False)


def _on_one_host(pair: Pair, prompt: Prompt, most: int) -> dict[str, Any]:
    """Decode a prompt with the whole model in mlx-lm's own loop."""
    ids, ends = _ids(pair, prompt.text), ends_of(pair.tokenizer)
    gc.collect()
    mx.reset_peak_memory()
    begin, first, tokens = time.monotonic(), 0.0, []
    for token, _ in generate_step(mx.array(ids), pair.target, max_tokens=most):
        first = first or time.monotonic()
        tokens.append(int(token))
        if tokens[-1] in ends:
            break
    return {
        "rank": None, "prompt": prompt.id, "repeat": 0, "tokens": tokens, "digest": f"sha256:{tokens_digest(tokens)}",
        "n_tokens": len(tokens), "stop": "stop" if tokens[-1] in ends else "length",
        "prefill_s": first - begin, "decode_s": time.monotonic() - first, **memory(),
    }  # fmt: skip


def _on_ranks(
    cluster: Cluster, job: dict[str, Any], prompts: Sequence[Prompt], repeat: int, clocks: Clocks
) -> Rows:
    ids: list[list[int]] = [[] for _ in prompts]

    def notice(message: dict[str, Any]) -> None:
        if message["event"] == "text":
            ids[message["answer"]].extend(message["ids"])

    job = {**job, "prompts": [prompt.text for prompt in prompts], "ids": True}
    rows: Rows = []
    for end in supervise.run(cluster, job, clocks, notice).ranks:
        for prompt, tokens, answer in zip(prompts, ids, end["answers"], strict=True):
            rows.append(
                {
                    "rank": end["rank"], "prompt": prompt.id, "repeat": repeat,
                    "tokens": tokens if end["rank"] == 0 else None, "digest": f"sha256:{answer['digest']}",
                    "n_tokens": answer["tokens"], "stop": answer["finish_reason"], "prefill_s": answer["prefill_s"],
                    "decode_s": answer["decode_s"],
                    **{name: end[name] for name in ("peak_bytes", "resident_bytes")},
                }
            )  # fmt: skip
    return rows


def _divergence(pair: Pair, text: str, ours: list[int], theirs: list[int]) -> dict[str, Any] | None:
    from engine.evals.speculation.bench import divergence_section

    section = divergence_section(pair, "raw", _ids(pair, text), ours, theirs, chunk=CHUNK, parting=True)
    return None if section["kind"] == "length" else section | {"ours": ours, "theirs": theirs}
