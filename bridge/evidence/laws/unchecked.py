"""Fields that nothing in a report checks, each with the reason why false values in it may pass."""

from __future__ import annotations

import re
from dataclasses import dataclass

ANY = "any"
BOUNDED = "small ones"
SWAPS = "swaps"


@dataclass(frozen=True)
class Unchecked:
    """One field, or a few that share a reason, and which lies about them pass.

    Attributes:
        fields: places such as ``rows[].decode_s``; a last part ``*`` stands for names that the report itself makes up.
        lies: ``any``; ``small ones``, within bounds that hold; or ``swaps`` with another item's.
        reason: why no law can tell.
    """

    fields: tuple[str, ...]
    lies: str
    reason: str

    @property
    def pattern(self) -> str:
        """A regular expression of the places."""
        return "|".join(re.escape(place).replace(r"\*", r"[^.\[\]]+") for place in self.fields)


_TOKENIZER = "only the model's tokenizer could check it; the digests in the job's log bind it"
_CLOCK = "within its bounds, every time is plausible; the digests in the log bind every row"
_HOST = "only the machine itself knows it; the runner's answer names its host"
_OPTION = "no row shows it; the job's argv binds it if a preset sets the option"
_UNKNOWN_MODEL = "the gate knows only the bundled models, which are checked"
_ORDER = "no figure depends on the order"
_NAME = "a name has no other meaning"
_SUMS = "the sums limit one another, so only a small change passes; the digests in the log bind them"
OLDER_REASON = "the older harness recorded no more, and nothing binds its reports to a run"

UNCHECKED = (
    Unchecked(("identity.host", "identity.os", "identity.chip", "identity.cores"), ANY, _HOST),
    Unchecked(("identity", "identity.memory_bytes", "identity.versions", "identity.versions.*"), ANY,
              "only the machine itself knows it; the gate compares memory size and mlx version with the runner's"),
    Unchecked(("identity.blas", "identity.blas.name", "identity.blas.library", "identity.blas.gflops"), ANY, _HOST),
    Unchecked(("identity.load", "identity.power", "identity.power.*"), ANY,
              "load and power source change from second to second; a busy machine is visible in its times"),
    Unchecked(("identity.code", "identity.code.version", "identity.code.digest", "identity.code.commit",
               "identity.code.dirty"), ANY, "the runner's answer names the version and the commit"),
    Unchecked(("created_at",), ANY,
              "the gate knows only that the report must be written while the job runs"),
    Unchecked(("run", "run.id"), ANY, "only the runner knows the id that it assigned, and its gate compares it"),
    Unchecked(("config.seed",), ANY,
              "benchmarks draw nothing at random, and needles are checked against their seed; elsewhere the seed only "
              "changes noise"),
    Unchecked(("config.dtype", "config.draft", "config.restorer", "config.text", "config.embed_scale"), ANY, _OPTION),
    Unchecked(("config.model",), ANY, _UNKNOWN_MODEL),
    Unchecked(("config.effort",), ANY,
              "the errors at different efforts differ by less than chance; the job's argv binds it"),
    Unchecked(("config.block", "config.block_size", "config.drafters", "config.rollbacks", "config.package"), ANY,
              "plain decoding does not depend on it; if nothing was left out, a name may be missing"),
    Unchecked(("config.tokens", "config.max_prompts", "config.caches", "config.bits", "config.codecs", "config.groups",
               "config.q_ranges", "config.distributions", "config.contexts", "config.lengths"), SWAPS,
              "another order, or a value above what there was to measure; the job's argv binds it"),
    Unchecked(("config.max_tokens",), ANY,
              "if every answer ends before it, no row shows it; the job's argv binds it"),
    Unchecked(("config.max_repeats",), ANY,
              "a run that ended with steady times had not come to it; the job's argv binds it"),
    Unchecked(("config.chunk", "config.temperature"), ANY, _OPTION),
    Unchecked(("config.loops", "config.fixed_length", "config.torch_device"), ANY,
              "plain decoding does not depend on loops, and answers may all reach max_tokens by themselves"),
    Unchecked(("config.store", "config.boundary", "config.against", "config.half"), ANY, _OPTION),
    Unchecked(("config.prompts", "config.source", "config.chat", "config.content_channel"), ANY,
              "nothing else shows the source of prompts; bundled prompts are checked by their digests"),
    Unchecked(("config.left_out", "config.left_out.*"), ANY,
              "only the run knows why something was left out; the gate requires a reason for each missing part"),
    Unchecked(("config.resumed_rows",), ANY, "if no row says when it started, nothing shows what was resumed"),
    Unchecked(("models", "models[]", "models[].id", "models[].weights", "models[].config", "models[].tokenizer",
               "models[].dtype", "models[].quantization", "models[].architecture", "models[].layers",
               "models[].parameters", "models[].stored_dtypes", "models[].role"), ANY, _UNKNOWN_MODEL),
    Unchecked(("arms", "prompts", "rows"), "another order", _ORDER),
    Unchecked(("arms[]", "arms[].name", "arms[].role", "arms[].loop", "arms[].cache", "arms[].patches",
              "arms[].oracle"),
              SWAPS, "only for arms without claims; baselines, oracles of candidates and drafters are checked"),
    Unchecked(("arms[].options", "arms[].options.through", "arms[].options.rotary_tables", "arms[].options.version",
               "arms[].options.early_layers",
               "arms[].options.boundary", "arms[].options.raw_layers", "arms[].options.sink", "arms[].options.window",
               "arms[].options.layers", "arms[].options.rollback", "arms[].options.block_size",
               "arms[].options.lookup", "arms[].options.adaptive", "arms[].options.loop",
               "arms[].options.runtime", "arms[].options.embed_scale", "arms[].options.positions",
               "arms[].options.stored_as", "arms[].options.dtype", "arms[].options.nominal_bits_per_value"), SWAPS,
              "no claim depends on it, unless a law relates it to rows, to the configuration or to the arm's name"),
    Unchecked(("workloads.*.source", "workloads.*.chat_template", "workloads.*.task", "workloads.*.shared_prefix",
               "workloads.*.shared_suffix"), ANY,
              "nothing else shows the source of prompts; bundled prompts and needles are checked by their texts"),
    Unchecked(("prompts[].n_tokens", "prompts[].length", "prompts[].depth", "prompts[].expected"), BOUNDED, _TOKENIZER),
    Unchecked(("prompts[].id", "prompts[].workload"), SWAPS, _NAME),
    Unchecked(("rows[].text", "rows[].tokens"), "the same in every row", _TOKENIZER),
    Unchecked(("rows[].repeat",), "one more in every row", "repeats are counted from 0 or from 1"),
    Unchecked(("seconds", "rows[].prefill_s", "rows[].decode_s", "rows[].e2e_s", "rows[].started_s", "rows[].seconds"),
              "small ones; any if no claim is about time", _CLOCK),
    Unchecked(("rows[].warmup", "rows[].sequence"), SWAPS,
              "without start times, another order of passes is equally possible"),
    Unchecked(("rows[].profile", "rows[].profile.draft_share", "rows[].profile.verify_share",
               "rows[].profile.overhead_share"), ANY,
              "no claim is about the shares of a profiled run, if they add up to 1"),
    Unchecked(("rows[].commits", "rows[].drafted", "rows[].accepted"), BOUNDED,
              "only the run knows how an adaptive drafter divided its rounds; the digests in the log bind every row"),
    Unchecked(("rows[].round_s", "rows[].round_s.draft", "rows[].round_s.verify", "rows[].round_s.wait"), BOUNDED,
              "no claim is about the parts of a round, if they fit into the run"),
    Unchecked(("rows[].counters", "rows[].counters.rounds", "rows[].counters.syncs", "rows[].counters.crossings",
               "rows[].counters.crossed_bytes", "rows[].counters.rounds_*",
               "rows[].counters.injected_positions", "rows[].counters.raw_positions", "rows[].counters.packed_bytes",
               "rows[].counters.codec_failures", "rows[].counters.evicted_positions", "rows[].counters.injected_reads"),
              "if an older engine left the others out", "a counter is checked against the other counters of its row"),
    Unchecked(("rows[].counters.proposed", "rows[].counters.accepted", "rows[].counters.cached_tokens",
               "rows[].counters.cache_bytes", "rows[].counters.together", "rows[].counters.joint_rounds"), BOUNDED,
              "a law asks whether a feature of the server ran; how much it did, only the run knows"),
    Unchecked(("rows[].cache", "rows[].context", "config.cache"), "the same in every row",
              "the time of a pass does not show what it went over; the job's argv binds it"),
    Unchecked(("rows[].clients", "rows[].question"), "the same answers again, for more clients",
              "a small model may answer all questions alike; the job's argv binds the number of clients"),
    Unchecked(("rows[].stop",), "the same in every row", _TOKENIZER),
    Unchecked(("config.drafts", "config.warm", "config.clients", "config.forms"), SWAPS,
              "another order, or one of them twice; the rows of each cell are counted"),
    Unchecked(("rows[].memory", "rows[].memory.peak_bytes", "rows[].memory.cache_bytes", "rows[].memory.layers",
               "rows[].memory.layers[]", "rows[].memory.layers[].kind", "rows[].memory.layers[].nbytes",
               "rows[].memory.layers[].arrays", "rows[].memory.layers[].arrays[]",
               "rows[].memory.layers[].arrays[].shape", "rows[].memory.layers[].arrays[].dtype"),
              "if no claim is about bytes", "bytes that no claim is about, or axes of an array with the same product"),
    Unchecked(("rows[]", "rows[].rel_mse", "rows[].rel_mse_stderr", "rows[].rotated", "rows[].distribution",
               "rows[].bits", "rows[].group", "rows[].dim", "rows[].nominal"), BOUNDED,
              "between floor and ceiling, an error depends on the vectors; `kakeya-engine codec rd` draws the same "
              "vectors from a seed on every machine"),
    Unchecked(("rows[].sum_squared_error", "rows[].sum_squares", "rows[].sum_kl", "rows[].same_top", "rows[].sum_nll"),
              BOUNDED, _SUMS),
    Unchecked(("rows[].prediction", "rows[].prediction.sum_kl", "rows[].prediction.same_top"), BOUNDED,
              "a law bounds it from the controls; what a model predicted, only the run knows"),
    Unchecked(("rows[].reference", "rows[].candidate", "rows[].block", "rows[].max_logit_error", "rows[].margin"),
              "the same on both sides", "only the two drafters know what they drafted; the digests in the log bind it"),
)  # fmt: skip
# Reports of the older harness.
OLDER = ("throughput", "results", "memory", "gate", "config")


def reason_for(kind: str, place: str) -> str | None:
    """Return why lies about a place may pass; None if they may not."""
    if not kind.startswith("kakeya.") and re.split(r"[.\[]", place)[0] in OLDER:
        return OLDER_REASON
    found = next((one for one in UNCHECKED if re.fullmatch(one.pattern, place)), None)
    return found.reason if found else None
