"""Measure the codecs: distortion against the goals, throughput side by side, and validity on many blocks.

    python benchmarks/codec.py [rd] [speed] [validity]

The torch reference takes part where torch and kakeyalattice are installed. Arms of one codec take turns; a figure is
the median of its rounds with the slowest and the fastest beside it, in processor time of all threads, since other
work on the machine changes the clock on the wall.
"""

import argparse
import importlib
import importlib.util
import statistics
import time

import numpy as np

from bridge.common import host
from engine import blas_speed
from engine.codec import cosets, graph
from engine.codec.affine import AffineCodec
from engine.codec.classic import ClassicCodec
from engine.codec.lattice import nearest_e8
from engine.codec.voronoi import VoronoiCodec
from engine.evals.rate_distortion.sources import DISTRIBUTIONS, draw
from engine.evals.rate_distortion.table import RatePlan, table
from engine.mx import mx

GOALS = {2.25: 0.079, 3.25: 0.0186, 4.25: 0.0046, 6.25: 2.8e-4}
DIM = 128
REST = 0.02  # seconds until the threads of the arm before wait no more: until then they take processor time


def rd(n_vectors):
    """Distortion of the Voronoi code against its goal and against affine codes of equal bits."""
    data = {name: draw(name, n_vectors, DIM, seed=0) for name in DISTRIBUTIONS}
    rows = table(data, RatePlan(("affine", "voronoi"), (2, 3, 4, 5, 6), (DIM,), (), "normal"))
    print(f"\nrel-MSE, D={DIM}, {n_vectors} vectors (standard error in brackets)")
    for distribution in DISTRIBUTIONS:
        of = [row for row in rows if row["distribution"] == distribution]
        for row in (row for row in of if row["codec"] == "voronoi"):
            rate = row["stored_bits_per_value"]
            affine = min(
                r["rel_mse"] for r in of if r["codec"] == "affine" and r["stored_bits_per_value"] == rate
            )
            goal = f"goal {GOALS[rate]:.3g}" if rate in GOALS else ""
            print(
                f"  {distribution:9} {rate:.2f} bits"
                f"  voronoi {row['rel_mse']:.4g} ({row['rel_mse_stderr']:.1g})"
                f"  best affine {affine:.4g}  limit {row['limit']:.4g}  {goal}"
            )


def speed(n_vectors, rounds):
    """Print each arm's vectors per second. Only arms of one codec take turns, so that no other evicts their data."""
    x = mx.array(draw("gaussian", n_vectors, DIM, seed=0))
    groups = {}
    for name, arm in _arms(x):
        groups.setdefault(_codec(name), {})[name] = arm
    times = {}
    for arms in groups.values():
        for name, arm in arms.items():
            arm()
            times[name] = []
        for name, arm in [*arms.items()] * rounds:
            time.sleep(REST)
            start = time.process_time()
            arm()
            times[name].append(time.process_time() - start)
    print(f"\nmillion vectors a processor second, D={DIM}, {n_vectors} at a time, median of {rounds} (range)")
    for name, taken in times.items():
        middle, slow, fast = (n_vectors / t / 1e6 for t in (statistics.median(taken), max(taken), min(taken)))
        print(f"  {name:34} {middle:8.4f}  ({slow:.4f}, {fast:.4f})")


def _codec(name):
    """Return what an arm is compared with: the published lattices with ours of the same name."""
    first, second, *_ = name.split()
    return second if first in {"classic", "published"} else first


def _arms(x):
    for dtype, name in ((mx.float16, "half"), (mx.float32, "single")):
        codes = mx.quantize(x.astype(dtype), group_size=DIM, bits=4)
        mx.eval(codes)
        yield (
            f"affine 4 bit encode, {name}",
            lambda d=dtype: mx.eval(mx.quantize(x.astype(d), group_size=DIM, bits=4)),
        )
        yield (
            f"affine 4 bit decode, {name}",
            lambda c=codes: mx.eval(mx.dequantize(*c, group_size=DIM, bits=4)),
        )
    rotated = AffineCodec(DIM, 4, DIM, rotated=True)
    packed = rotated.encode(x)
    yield "affine 4 bit decode, H, single", lambda: mx.eval(rotated.decode(packed))
    for bits in (2.25, 4.25, 6.25):
        codec = VoronoiCodec(DIM, bits)
        rows = codec.encode(x)
        mx.eval(rows)
        for effort in ("fast", "normal"):
            other = VoronoiCodec(DIM, bits, effort)
            yield f"voronoi {bits} encode, {effort}", lambda c=other: mx.eval(c.encode(x))
        yield f"voronoi {bits} decode", lambda c=codec, r=rows: mx.eval(c.decode(r))
        yield f"voronoi {bits} decode, H left on", lambda c=codec, r=rows: mx.eval(c.decode_rotated(r))
    for lattice in ("e8", "d4"):
        classic = ClassicCodec(lattice, DIM, 38)
        yield f"classic {lattice} round trip", lambda c=classic: mx.eval(c.roundtrip(x))
    if importlib.util.find_spec("kakeyalattice") and importlib.util.find_spec("torch"):
        yield from _torch_arms(np.array(x))


def _torch_arms(x):
    kakeyalattice, torch = (importlib.import_module(name) for name in ("kakeyalattice", "torch"))
    tensor = torch.tensor(x)
    for lattice, name in (("e8", "V15KakeyaZamirE8GPU"), ("d4", "V14KakeyaZamirLatticeGPU")):
        codec = getattr(kakeyalattice, name)(DIM, 38, device="cpu")
        for threads in (1, torch.get_num_threads()):

            def run(c=codec, t=threads):
                torch.set_num_threads(t)
                c.roundtrip(tensor)

            yield f"published {lattice} round trip, {threads} thr.", run


def validity(blocks):
    """Random rows and encoded vectors: every block a point of E8 in its region, with its own label."""
    print("\nblocks that are not codewords")
    per_row = DIM // 8
    rng = np.random.default_rng(0)
    for bits in (2, 3, 4, 5, 6):
        codec, bad, seen = VoronoiCodec(DIM, bits, "fast"), 0, 0
        while seen < blocks // 5:
            rows = mx.array(rng.integers(0, 256, (20_000, codec.layout.nbytes), dtype=np.uint8))
            bad += _invalid(codec, rows)
            seen += 20_000 * per_row
        encoded = codec.encode(mx.array(draw("t4", 4000, DIM, seed=bits)))
        bad_encoded = _invalid(codec, encoded)
        print(f"  {bits} bits: {bad} of {seen} random ones, {bad_encoded} of {4000 * per_row} encoded ones")
    for q in (10, 38):
        print(f"  published E8, Q{q}: {_off_lattice(q):.2%} of its blocks, after its clamp")


def _off_lattice(q):
    """Take the published steps up to the clamp; return the share of blocks that are then no points of E8."""
    x = mx.array(draw("gaussian", 20_000, DIM, seed=q))
    y = mx.hadamard_transform(x / mx.linalg.norm(x, axis=-1, keepdims=True))
    z = y / (mx.abs(y).max(axis=-1, keepdims=True).astype(mx.float16).astype(mx.float32) / q)
    points = mx.clip(nearest_e8(z.reshape(-1, DIM // 8, 8).swapaxes(1, 2))[0], -q, q)
    return (nearest_e8(points)[0] != points).any(axis=1).astype(mx.float32).mean().item()


def _invalid(codec, rows):
    _, _, fields = graph.unpack(rows, codec.layout)
    points = cosets.point_of(fields, codec.layout.bits).astype(mx.float32) / 16
    on_lattice = (nearest_e8(points)[0] == points).all(axis=1)
    held = cosets.inside(points, codec.layout.q)[:, 0] > 0
    same = (cosets.label(points, codec.layout.bits) == fields).all(axis=1)
    assert mx.isfinite(codec.decode(rows[:100])).all().item()
    return int((~(on_lattice & held & same)).sum().item())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=["rd", "speed", "validity", []], default=[])
    parser.add_argument("--n-vectors", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--blocks", type=int, default=10**7)
    args = parser.parse_args()
    bound = blas_speed.in_use()
    print(f"{host.chip()}, {host.cores()} cores, {host.system()}")
    print(f"mlx {host.version('mlx')} on {mx.default_device()}")
    print(f"{bound.name} {bound.gflops} GFLOP/s")
    parts = args.parts or ["rd", "speed", "validity"]
    if "rd" in parts:
        rd(args.n_vectors)
    if "speed" in parts:
        speed(args.n_vectors, args.rounds)
    if "validity" in parts:
        validity(args.blocks)


if __name__ == "__main__":
    main()
