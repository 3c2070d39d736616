"""``kakeya-engine train restorer --from-drafter``."""

from pathlib import Path

from bridge.common.cli.progress import progress
from engine.cli.train.common import write_description


def fit_restorer(
    name: str, out: Path, text: tuple[Path, ...], *, layers: str, rank: int, rows: int, length: int,
    task_share: float, seed: int,
) -> None:  # fmt: skip
    """Fit a restorer that reads the drafter of a target, and write it to ``restore/`` in ``out``."""
    import numpy as np

    from engine import models
    from engine.errors import BadInput
    from engine.restore.cache import restored_layers
    from engine.restore.drafted import save_drafted
    from engine.restore.weights import target_digest
    from engine.train.data import mixed
    from engine.train.data import text as sources
    from engine.train.restorer.fit import fit, relative_errors

    pair = models.load(name)
    if pair.draft is None:
        raise BadInput(f"{name} has no drafter to read", "train one: kakeya-engine train drafter")
    wanted = restored_layers(pair.target, sliding=layers == "sliding")
    out.mkdir(parents=True, exist_ok=True)
    ids = sources.token_ids(pair.tokenizer, text, out / "text.npy")
    drawn = mixed.source(pair.tokenizer, ids, task_share=task_share, length=length)(
        np.random.default_rng(seed), rows + 1
    )
    digests = target_digest(pair.parts["target"].folder), target_digest(pair.parts["draft"].folder)
    with progress("fit", "rows") as (on_start, on_row):
        on_start(rows)
        restorer = fit(
            pair.target, pair.draft.bind(pair.target), wanted, drawn[:-1].tolist(),
            rank=rank, digests=digests, on_row=on_row,
        )  # fmt: skip
    errors = relative_errors(restorer, pair.target, drawn[-1].tolist())
    save_drafted(restorer, out / "restore")
    plan = {
        "rows": rows,
        "length": length,
        "rank": restorer.config.rank,
        "task_share": task_share,
        "seed": seed,
    }
    rounded = [round(error, 4) for error in errors]
    described = {"target": pair.name, "plan": {**plan, "layers": layers}, "held_out_error": rounded}
    write_description(out / "restore", described)
