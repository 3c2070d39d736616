"""A target that reads its rotary embeddings from tables gives the same figures, and is left as it was."""

import pytest

from engine.dflash.target.rotary import TableRope, with_tables
from engine.lm import cache as lm_cache
from engine.mx import mx, nn, on_cpu, tree
from tests.engine import small_models as models

pytestmark = pytest.mark.skipif(not on_cpu(), reason="on a GPU the embedding is one kernel")

KINDS = [
    models.llama,
    models.gemma2,
    models.gemma3,
    models.gemma4,
    models.gpt_oss,
    models.qwen3,
    models.qwen3_5,
]


def outputs(run, model, lengths):
    """Logits of chunks of these lengths, one after the other."""
    caches, at, made = lm_cache.make_prompt_cache(model), 0, []
    for n in lengths:
        made.append(run(models.tokens(n, seed=at), cache=caches))
        at += n
        mx.eval(made[-1], [cache.state for cache in caches])
    return made


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    ("kind", "dtype"),
    [(kind, mx.float32) for kind in KINDS]
    # MLX has no experts in half precision on the CPU.
    + [(kind, mx.bfloat16) for kind in KINDS if kind is not models.gpt_oss],
)
def test_the_same_figures_bit_for_bit(kind, dtype):
    model = kind()
    model.update(tree.tree_map(lambda x: x.astype(dtype), model.parameters()))
    lengths = (33, 1, 8, 1, 1, 5)
    for mine, theirs in zip(
        outputs(with_tables(model), model, lengths), outputs(model, model, lengths), strict=True
    ):
        assert mx.array_equal(mine, theirs)


def test_far_from_the_start_tables_are_made_anew():
    model = models.qwen3()
    made = with_tables(model)
    for start in (0, 1500, 1020, 5000, 0):
        caches = [lm_cache.make_prompt_cache(model) for _ in range(2)]
        for cache in (*caches[0], *caches[1]):
            cache.offset = start
            cache.keys = cache.values = mx.zeros((1, 2, start + 8, 64))
        tokens = models.tokens(8)
        assert mx.array_equal(made(tokens, cache=caches[0]), model(tokens, cache=caches[1]))


def test_embeddings_are_replaced_in_a_copy_that_shares_the_weights():
    for kind in (models.qwen3, models.gemma3):
        model = kind()
        before = {name: type(module) for name, module in model.named_modules()}
        made = with_tables(model)
        assert {name: type(module) for name, module in model.named_modules()} == before
        theirs = dict(tree.tree_flatten(model.parameters()))
        mine = dict(tree.tree_flatten(made.parameters()))
        assert mine.keys() == theirs.keys()
        assert all(mine[name] is theirs[name] for name in mine)
        kinds = {type(module) for _, module in made.named_modules()}
        assert TableRope in kinds
        assert nn.RoPE not in kinds


def test_layers_of_one_kind_share_their_table():
    ropes = [layer.self_attn.rope for layer in with_tables(models.gemma3()).layers]
    assert len({id(rope.table) for rope in ropes}) == len({rope.base for rope in ropes}) == 2


def test_what_a_table_cannot_give_is_computed_as_before():
    whole = nn.RoPE(64)
    for rope, offset in ((nn.RoPE(32), 3), (whole, mx.array([3]))):
        model = nn.Sequential(rope)
        made = with_tables(model).layers[0]
        x = mx.random.normal((1, 2, 5, 64), key=mx.random.key(0))
        assert type(made) is TableRope
        assert mx.array_equal(made(x, offset=offset), rope(x, offset=offset))
    odd = nn.Sequential(nn.RoPE(64, traditional=True))
    assert with_tables(odd) is odd


def test_a_model_without_any_is_itself():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    assert with_tables(model) is model
