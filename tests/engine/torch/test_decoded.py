"""Decoded vectors that a cache keeps beside its codes change the time of a step, and nothing else."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers", minversion="5.24")

from engine.errors import BadInput  # noqa: E402
from engine.torch import cache_bytes, kakeya_cache  # noqa: E402
from engine.torch.codecs import Coder  # noqa: E402
from tests.engine.torch.models import gemma, llama, prompt  # noqa: E402

TOKEN = 4 * 2 * 2 * 64 * 4  # bytes of a token's decoded keys and values in all layers
ALL, SOME = 1 << 20, 20 * TOKEN  # room for all tokens of these tests, and for twenty
SPECS = ("e8v@4.25", "e8@q38", "k=e8v@6.25,v=raw")


@pytest.fixture(scope="module")
def model():
    return llama()


def alike(first, second):
    """Return whether logits differ by rounding, which may also change the code of a later layer."""
    return bool((first - second).norm() < 0.01 * second.norm())


def check_vectors(cache, room):
    """Check that the vectors kept after a step equal what decoding the rows gives, bit for bit."""
    for layer in cache.layers:
        for rows, coder, arrays in zip((layer.keys, layer.values), layer.coders, layer.decoded, strict=True):
            batch, heads, tokens, _ = rows.shape
            count = min(tokens, room // 4 // 2 // (batch * heads * 64 * 4))
            assert count
            assert torch.equal(arrays[0][:, :, :count], coder.decode_rotated(rows)[:, :, :count])


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("room", [ALL, SOME, TOKEN - 1])
def test_a_step_gives_what_it_gives_without(model, spec, room):
    ids, caches = prompt(30), [kakeya_cache(model, spec, decoded=each) for each in (0, room)]
    with torch.inference_mode():
        for part in ids.split([18, 1, 1, 6, 1, 1, 2], dim=1):
            plain, quick = (model(part, cache=cache).logits for cache in caches)
            assert alike(quick, plain)
    more = cache_bytes(caches[1]) - cache_bytes(caches[0])
    assert more <= room  # counted, and no more than there may be
    assert (more > 0) == (room >= TOKEN)


@pytest.mark.parametrize("room", [ALL, SOME])
def test_rows_that_are_cut_chosen_or_reordered_are_followed(model, room):
    ids = prompt(26, rows=3)
    caches = [kakeya_cache(model, decoded=each) for each in (0, 3 * room)]
    changes = [
        lambda cache: cache.crop(-3),
        lambda cache: cache.reorder_cache(torch.tensor([2, 0, 1])),
        lambda cache: cache.crop(-20),
        lambda cache: cache.batch_select_indices(torch.tensor([2, 0])),
        lambda cache: cache.batch_repeat_interleave(2),
        lambda cache: cache.reset(),
    ]
    with torch.inference_mode():
        for cache in caches:
            model(ids, cache=cache)
        rows = 3
        for change in changes:
            for cache in caches:
                change(cache)
                rows = cache.layers[0].keys.shape[0] if cache.get_seq_length() else rows
            for token in ids[:1, :3].split(1, dim=1):
                plain, quick = (model(token.expand(rows, 1), cache=cache).logits for cache in caches)
                assert alike(quick, plain)
                check_vectors(caches[1], 3 * room)


def test_a_token_is_decoded_once(model, monkeypatch):
    decoded, decode = [], Coder.decode_rotated
    monkeypatch.setattr(
        Coder, "decode_rotated", lambda self, rows: decoded.append(rows.shape[2]) or decode(self, rows)
    )
    cache = kakeya_cache(model, decoded=ALL)
    with torch.inference_mode():
        model(prompt(20), cache=cache)
        decoded.clear()  # a prompt's chunk decodes by itself
        for _ in range(3):
            model(prompt(1), cache=cache)
    assert decoded == [21] * 8 + [1] * 16


def test_outside_of_inference_mode_the_vectors_grow_too(model):
    cache = kakeya_cache(model, decoded=ALL)
    with torch.inference_mode():
        model(prompt(20), cache=cache)
        model(prompt(1), cache=cache)
    with torch.no_grad():
        model(prompt(1), cache=cache)
    assert cache.get_seq_length() == 22


def test_layers_that_forget_tokens_keep_none():
    model = gemma(layer_types=["sliding_attention", "full_attention"] * 2)
    cache = kakeya_cache(model, decoded=ALL)
    with torch.inference_mode():
        model(prompt(40), cache=cache)
        model(prompt(1), cache=cache)
    assert ["decoded" in vars(layer) for layer in cache.layers] == [False, True] * 2


def test_a_negative_number_of_bytes_is_refused(model):
    with pytest.raises(BadInput, match="decoded is -1"):
        kakeya_cache(model, decoded=-1)
