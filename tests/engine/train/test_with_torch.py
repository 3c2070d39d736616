"""What training with torch has in common: the type of products, and Muon without bfloat16."""

import math
import time

import pytest

torch = pytest.importorskip("torch")
with_torch = pytest.importorskip("engine.train.with_torch")


def weights(rng):
    return [torch.nn.Parameter(torch.randn(shape, generator=rng)) for shape in ((48, 32), (32, 80), (40, 40))]


@pytest.mark.parametrize("scaling", ["original", "match_rms_adamw"])
def test_muon_in_float32_goes_where_torchs_goes(scaling):
    made = [weights(torch.Generator().manual_seed(0)) for _ in range(2)]
    kinds = (torch.optim.Muon, with_torch.SingleMuon)
    options = {"lr": 0.1, "weight_decay": 0.1, "adjust_lr_fn": scaling}
    theirs, mine = (kind(group, **options) for kind, group in zip(kinds, made, strict=True))
    start = [weight.detach().clone() for weight in made[0]]
    rng = torch.Generator().manual_seed(1)
    for _ in range(4):
        for pair in zip(*made, strict=True):
            gradient = torch.randn(pair[0].shape, generator=rng)
            for weight in pair:
                weight.grad = gradient.clone()
        theirs.step()
        mine.step()
    for expected, found, before in zip(*made, start, strict=True):
        assert (found - expected).norm() < 0.02 * (expected - before).norm()


def test_its_iterations_nearly_orthogonalize():
    for weight in weights(torch.Generator().manual_seed(2)):
        before = weight.detach().clone()
        optimizer = with_torch.SingleMuon([weight], lr=1.0, weight_decay=0.0, momentum=0.0)
        weight.grad = before.clone()
        optimizer.step()
        high, wide = before.shape
        moved = (before - weight.detach()) / max(1, high / wide) ** 0.5
        sizes = torch.linalg.svdvals(moved)
        assert sizes.min() > 0.6
        assert sizes.max() < 1.3


def test_products_are_in_the_type_that_is_not_much_slower():
    with_torch.use_threads(1)
    left, right = torch.randn(512, 256), torch.randn(256, 256)

    def seconds(dtype):
        a, b = left.to(dtype), right.to(dtype)
        start = time.perf_counter()
        a @ b
        return time.perf_counter() - start

    chosen = with_torch.product_dtype("cpu")
    # In turn and often: whatever else runs meanwhile delays them alike, and some of each not at all.
    took = dict.fromkeys((torch.float32, torch.bfloat16), math.inf)
    for _ in range(200):
        took = {dtype: min(least, seconds(dtype)) for dtype, least in took.items()}
    assert took[chosen] < 4 * min(took.values())
    assert with_torch.product_dtype("cuda") is torch.bfloat16
