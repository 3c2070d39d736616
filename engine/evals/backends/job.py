"""The measurement of both backends on one model: arms over the same caches, which take turns."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from bridge.reports import kinds
from engine.cache.protocol import Cache
from engine.cache.spec import parse
from engine.evals.backends.companion import TorchProcess
from engine.evals.backends.mlx_side import MlxSide
from engine.evals.recall import try_caches
from engine.evals.speculation.bench import explain
from engine.harness.arm import Arm, Turn, interleave
from engine.harness.job import Job, sections
from engine.harness.prompt_sets import Prompt, Workload
from engine.harness.rows import Row
from engine.models import Pair

MLX, TORCH = "mlx", "torch"
LOOPS = {MLX: "engine.evals.backends.mlx_side", TORCH: "engine.evals.backends.torch_side"}
ROLES = {MLX: "reference", TORCH: "candidate"}

BackendArm = Arm[list[Cache]]


@dataclass(frozen=True)
class BackendPlan:
    """What is measured."""

    caches: Sequence[str]  # cache specs; `raw` always runs
    max_tokens: int = 48  # decoded after each prompt
    repeats: int = 5  # counted runs of each arm on each prompt; one more, before them, is not counted
    device: str | None = None  # where torch computes; None chooses
    dtype: str = "float32"  # in which both compute
    torch_blas: str = "own"  # `mlx`: torch multiplies with the OpenBLAS that MLX uses
    seed: int = 0  # of nothing: all arms are greedy
    temperature: float = 0.0
    left_out: dict[str, str] = field(
        default_factory=dict
    )  # caches that a backend cannot use, with its reason


def arms_of(pair: Pair, torch: TorchProcess, plan: BackendPlan) -> tuple[list[BackendArm], dict[str, str]]:
    """Return an arm for each backend and cache, and the caches left out with the reason."""
    specs = [spec for spec in dict.fromkeys(parse(text).text for text in plan.caches) if spec != kinds.RAW]
    tried, left_out = try_caches(pair.target, (kinds.RAW, *specs), 0)
    left_out |= torch.left_out
    arms: list[BackendArm] = []
    for spec in (kinds.RAW, *(spec for spec in specs if spec not in left_out)):
        for backend in (MLX, TORCH):
            oracle = f"{MLX}/{kinds.RAW}" if (backend, spec) == (TORCH, kinds.RAW) else None
            patches = tried[spec].patches if backend == MLX and spec in tried else ()
            arms.append(
                Arm(
                    f"{backend}/{spec}", ROLES[backend], LOOPS[backend], lambda _: [], oracle=oracle,
                    cache=spec, patches=patches, options={"backend": backend},
                )
            )  # fmt: skip
    return arms, left_out


def job(
    pair: Pair, torch: TorchProcess, arms: Sequence[BackendArm], workloads: Sequence[Workload],
    config: dict[str, Any], folder: Path,
) -> Job:  # fmt: skip
    """Return the job in which all arms decode, predict and encode on encoded prompts.

    ``config`` has the fields of a ``BackendPlan``. The vectors that both backends encode lie in ``folder``.
    """
    prompts = [prompt for workload in workloads for prompt in workload.prompts]
    mlx, most = MlxSide(pair), config["max_tokens"]
    answer = lru_cache(maxsize=2)(lambda ids: mlx.decode(kinds.RAW, ids, most)["tokens"])
    vectors, predictions = folder / "vectors.npz", folder / "raw.npy"

    @lru_cache(maxsize=1)
    def saved(ids: tuple[int, ...]) -> Path:
        mlx.save_vectors(vectors, ids)
        return vectors

    def over_torch(spec: str, ids: tuple[int, ...], follow: list[int]) -> Row:
        if spec == kinds.RAW:
            torch.ask("predict", spec=spec, ids=ids, follow=follow, out=str(predictions))
            return {"prediction": mlx.distance_of(predictions, ids, follow)}
        prediction = torch.ask("predict", spec=spec, ids=ids, follow=follow, out=None)
        return {"prediction": prediction, **torch.ask("encode", spec=spec, path=str(saved(ids)))}

    def over_mlx(spec: str, ids: tuple[int, ...], follow: list[int]) -> Row:
        if spec == kinds.RAW:
            return {}
        return {"prediction": mlx.predict(spec, ids, follow), "codes": mlx.encode(spec, saved(ids))}

    def measure(turn: Turn[BackendArm, Prompt]) -> list[Row]:
        spec, ids = turn.arm.cache, turn.prompt.ids
        is_mlx = turn.arm.options["backend"] == MLX
        with turn.arm.attention():
            row = (
                mlx.decode(spec, ids, most) if is_mlx else torch.ask("decode", spec=spec, ids=ids, count=most)
            )
        if turn.repeat == 1:
            follow = answer(ids)
            mlx.raw(ids, tuple(follow))
            with turn.arm.attention():
                row |= (over_mlx if is_mlx else over_torch)(spec, ids, follow)
        return [{"warmup": turn.repeat == 0, "text": pair.tokenizer.decode(row["tokens"]), **row}]

    return Job(
        kinds.TORCH_PARITY,
        {
            **sections(pair, workloads, arms, answer=most),
            "backends": {MLX: mlx.about(), TORCH: torch.about},
        },
        config,
        turns=list(interleave(arms, prompts, range(config["repeats"] + 1))),
        measure=measure,
        finish=lambda rows: explain(rows, arms, prompts, pair),
    )
