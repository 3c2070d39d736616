"""What a rank does once it is connected: decode a prompt, or measure communication."""

import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bridge.reports.digests import tokens_digest
from engine.checkpoints import files, hub, settings
from engine.cluster.messages import send
from engine.cluster.watch import Watch
from engine.models import registry

_FLUSH_S = 0.1


def generate(job: dict[str, Any], group: Any, watch: Watch) -> dict[str, Any]:
    """Decode prompts with this rank's part of the model. Every rank decodes the same tokens; rank 0 sends them."""
    from engine.lm import generate_step, make_sampler
    from engine.mx import mx

    watch.enter("load")
    model, tokenizer, folder = _load(job, group)
    sampler = make_sampler(job["temperature"], top_p=job["top_p"], min_p=job["min_p"], top_k=job["top_k"])
    answers: list[dict[str, Any]] = []
    tokens: list[int] = []
    for index, prompt in enumerate(job["prompts"]):
        ids = prompt_ids(job["model"], prompt, job["system"], tokenizer, folder, raw=job["raw"])
        begin, most = time.monotonic(), _most(model, ids, job["max_tokens"])
        mx.random.seed(job["seed"])
        watch.enter("prefill", len(tokens))
        steps = generate_step(
            mx.array(ids), model, max_tokens=most, sampler=sampler,
            prompt_progress_callback=lambda done, _: watch.enter("prefill", watch.count + done),
        )  # fmt: skip
        answer = _Answer(tokenizer, job, watch, index)
        first = 0.0
        for token, _ in steps:
            first = first or time.monotonic()
            if answer.add(int(token)):
                break
        last = time.monotonic()
        answer.finish()
        tokens += answer.tokens
        answers.append(
            {
                "tokens": len(answer.tokens), "prompt_tokens": len(ids), "digest": tokens_digest(answer.tokens),
                "finish_reason": answer.reason, "prefill_s": first - begin, "decode_s": last - first,
            }
        )  # fmt: skip
    _wait_for_all(group, watch)
    return {"tokens": len(tokens), "digest": tokens_digest(tokens), "answers": answers, **memory()}


def all_reduce(job: dict[str, Any], group: Any, watch: Watch) -> dict[str, Any]:
    """Time sums over all ranks: each rank adds its number plus one, in arrays of these sizes."""
    from engine.mx import mx, number

    rows = []
    for size in job["sizes"]:
        ones = mx.full((size // 4,), float(group.rank() + 1), mx.float32)
        mx.eval(ones)
        seconds = []
        for _ in range(job["repeats"] + 1):
            watch.enter("decode", watch.count + 1)
            begin = time.perf_counter()
            total = mx.distributed.all_sum(ones, group=group)
            mx.eval(total)
            seconds.append(time.perf_counter() - begin)
        ends = number(mx.min(total)), number(mx.max(total))
        rows.append({"bytes": size // 4 * 4, "seconds": seconds[1:], "least": ends[0], "most": ends[1]})
    _wait_for_all(group, watch)
    sums = [int(row["most"]) for row in rows]
    return {"tokens": len(sums), "digest": tokens_digest(sums), "rows": rows, **memory()}


JOBS: dict[str, Callable[[dict[str, Any], Any, Watch], dict[str, Any]]] = {
    "generate": generate,
    "all-reduce": all_reduce,
}


class _Answer:
    """The tokens so far, and their text on rank 0."""

    def __init__(self, tokenizer: Any, job: dict[str, Any], watch: Watch, index: int) -> None:
        from engine.dflash.stops import Stops

        self.tokens: list[int] = []
        self.reason = "length"
        self._stops, self._watch, self._index = Stops(tokenizer, None, job["stop"]), watch, index
        self._with_ids = job["ids"]
        self._text, self._sent_at, self._sent = "", time.monotonic(), 0

    def add(self, token: int) -> bool:
        """Add a token; returns whether the answer ends with it."""
        cut = self._stops.take([token])
        self.tokens.append(token)
        self._text += cut.text
        self._watch.phase, self._watch.count = "decode", len(self.tokens)
        if len(self.tokens) == 1 or time.monotonic() - self._sent_at > _FLUSH_S:
            self._flush()
        if cut.stopped:
            self.reason = "stop"
        return cut.stopped

    def finish(self) -> None:
        """Send the rest of the text."""
        if self.reason == "length":
            self._text += self._stops.flush()
        self._flush()

    def _flush(self) -> None:
        if self._watch.rank == 0:
            ids = self.tokens[self._sent :] if self._with_ids else []
            send("text", rank=0, count=len(self.tokens), text=self._text, answer=self._index, ids=ids)
        self._text, self._sent_at, self._sent = "", time.monotonic(), len(self.tokens)


def _wait_for_all(group: Any, watch: Watch) -> None:
    """Wait until all ranks have received what the others sent, before one of them ends."""
    from engine.mx import mx

    watch.enter("end", watch.count)
    mx.eval(mx.distributed.all_sum(mx.array(1.0), group=group, stream=mx.cpu))


def _load(job: dict[str, Any], group: Any) -> tuple[Any, Any, Path]:
    from engine.dflash.target.context import note_context
    from engine.lm import utils
    from engine.models.target import cast, chosen_dtype, load_tokenizer
    from engine.mx import mx

    folder = hub.folder_of(registry.find(job["model"]).target)
    config = files.read_config(folder)
    if job["split"] == "tensor":
        files.weight_files(folder)
    groups = (group, None) if job["split"] == "pipeline" else (None, group)
    # Code in the folder is never run: mlx-lm's own default would run a tokenizer's.
    own = {"trust_remote_code": False, **settings.chat_template(folder)}
    model, _ = utils.sharded_load(str(folder), *groups, tokenizer_config=own)
    note_context(model, config)
    dtype = chosen_dtype(job["dtype"])
    if dtype is not None:
        cast(model, dtype)
    mx.eval(model.parameters())
    return model, load_tokenizer(folder, config), folder


def prompt_ids(
    name: str, prompt: str, system: str | None, tokenizer: Any, folder: Path, *, raw: bool
) -> list[int]:
    """Return the ids of a prompt: a user's message for a model that chats, otherwise a text to continue."""
    from engine.checkpoints.published import PAIRS
    from engine.errors import BadInput
    from engine.tokens import encode, encode_chat

    chats = tokenizer.has_chat_template and folder.parent.name not in PAIRS and not raw
    if system is not None and not chats:
        raise BadInput(f"{name} has no chat template, so --system has nowhere to go")
    if not chats:
        return encode(tokenizer, prompt)
    turns = [{"role": "system", "content": system}] if system is not None else []
    return encode_chat(tokenizer, [*turns, {"role": "user", "content": prompt}])


def _most(model: Any, prompt: list[int], tokens: int) -> int:
    """Return how many tokens may follow a prompt, at most ``tokens``."""
    from engine.dflash.target.context import check_ids, room

    check_ids(model, prompt)
    fitting = room(model, len(prompt))
    return tokens if fitting is None else min(tokens, fitting)


def memory() -> dict[str, int]:
    """Return the highest bytes of MLX's arrays and of this process until now."""
    from engine.mx import mx

    unit = 1 if sys.platform == "darwin" else 1024
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return {"peak_bytes": mx.get_peak_memory(), "resident_bytes": resident}
