"""Decodes rows in torch. The numbers equal those of ``engine.codec.cpu.decoder`` bit for bit."""

import torch

from engine.codec.spec import BETA_GAP, SCALE_MAX, SCALE_MIN, SCALE_ZERO, SHIFT, UNIT, Layout
from engine.torch.lattice import column, fold
from engine.torch.scales import steps_of


def decode(rows: torch.Tensor, layout: Layout) -> torch.Tensor:
    """Return vectors with the rotation still on, float32 ``[dim, n]``, of rows, uint8 ``[n, nbytes]``."""
    flat = rows.T.contiguous()
    n = flat.shape[1]
    points = point_of(_fields(flat, layout).reshape(8, -1), layout.bits).reshape(8, layout.blocks, n)
    return (points * _block_steps(flat, layout)).reshape(layout.dim, n)


def _fields(flat: torch.Tensor, layout: Layout) -> torch.Tensor:
    """Return the fields, int16 ``[dim, n]``, of bytes ``[nbytes, n]``."""
    n, at = flat.shape[1], 2 + layout.beta_bytes
    fields = torch.zeros((layout.dim, n), dtype=torch.int16, device=flat.device)
    for width, low in layout.planes:
        size = layout.dim * width // 8
        plane = flat[at : at + size].to(torch.int16)
        shifts = column(tuple(range(0, 8, width)), plane)[..., None]
        values = ((plane >> shifts) & ((1 << width) - 1)).reshape(layout.dim, n)
        fields |= values << low
        at += size
    return fields


def _block_steps(flat: torch.Tensor, layout: Layout) -> torch.Tensor:
    """Return the factors of points that were multiplied by UNIT, float32 ``[blocks, n]``."""
    scale = flat[0].int() | (flat[1].view(torch.int8).int() << 8)
    bits = column(tuple(range(8)), scale)
    beta = (flat[2 : 2 + layout.beta_bytes, None].int() >> bits) & 1
    beta = beta.reshape(-1, flat.shape[1])[: layout.blocks]
    steps = steps_of((scale + BETA_GAP * beta).clamp(SCALE_MIN, SCALE_MAX + BETA_GAP))
    return steps * ((scale != SCALE_ZERO).float() * (1 / UNIT))


def point_of(fields: torch.Tensor, bits: int) -> torch.Tensor:
    """Return UNIT times the codeword of each column of fields, int16 ``[8, columns]``.

    ``engine.codec.cpu.decoder.point_of`` explains the comparison of the two candidates.
    """
    q, period = 1 << bits, UNIT << bits
    shift = column(SHIFT, fields)
    parity = fields[0] >> (bits - 1)
    head = torch.cat([fields[:1] & (q // 2 - 1), fields[1:7]])
    last = 2 * fields[7:] | (fold(torch.bitwise_xor, head) & 1)
    ahead = UNIT * torch.cat([head, last]) + (UNIT // 2 * parity + (period // 2) - shift)
    x = (ahead & (period - 1)) - period // 2
    odd = (fold(torch.bitwise_xor, ahead) >> (bits + 4)) & 1
    odd_half = odd ^ (fold(torch.bitwise_xor, x) < 0).to(torch.int16)
    size = x.abs()
    most, least = size.amax(0), size.amin(0)
    rest = 2 * period - fold(torch.add, size) + 2 * odd_half * least
    take = rest < odd * (period - 2 * most)
    half = torch.where(x < 0, period // 2, -period // 2).to(torch.int16)
    points = torch.where(take, x + half, x)
    moves = (size == torch.where(take, least, most)) & torch.where(take, odd_half, odd).bool()
    points = points - moves * torch.where(points < 0, -period, period).to(torch.int16)
    return points + shift
