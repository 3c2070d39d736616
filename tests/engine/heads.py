"""Small random heads for the models of small_models.py, and their forward pass in NumPy, from the description."""

import numpy as np

from engine.dflash.heads.eagle3 import Eagle3
from engine.dflash.heads.eagle3_config import Eagle3Config
from engine.dflash.heads.mtp import Mtp, MtpConfig
from engine.mx import mx, tree
from tests.engine import small_models

BASE = {
    "hidden_size": 64,
    "target_hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "intermediate_size": 96,
    "vocab_size": 128,
    "draft_vocab_size": 48,
    "rms_norm_eps": 1e-6,
    "layer_ids": (0, 1, 3),
}
QWEN = {
    **small_models.SHAPE,
    "model_type": "qwen3_5",
    "num_hidden_layers": 4,
    "linear_num_value_heads": 2,
    "linear_num_key_heads": 1,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "full_attention_interval": 2,
}
MOE = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
}
IDS = sorted(np.random.default_rng(5).choice(128, 48, replace=False).tolist())


def eagle3(seed=0, ids=IDS, **changes):
    """An EAGLE-3 head with random weights; norms differ from one."""
    head = Eagle3(Eagle3Config(**{**BASE, **changes}))
    head.use_ids(list(ids) if head.config.draft_vocab_size < head.config.vocab_size else None)
    return _filled(head, seed)


def mtp(seed=0, **changes):
    """An MTP head of small_models.qwen3_5() with random weights."""
    return _filled(Mtp(MtpConfig.from_json({**QWEN, **changes})), seed)


def _filled(model, seed):
    rng = np.random.default_rng(seed)

    def fill(leaf):
        values = rng.standard_normal(leaf.shape).astype(np.float32)
        return mx.array(1 + values / 4 if leaf.ndim == 1 else values / np.sqrt(leaf.shape[-1]))

    model.update(tree.tree_map(fill, model.parameters()))
    return model.eval()


def in_numpy(head, embed, tokens, taps, bonus, n):
    """Return n drafts, the target's ids, and their logits, by the description of EAGLE-3, without any cache.

    ``tokens`` were accepted, with their taps ``[len(tokens), 3 * hidden]``; ``bonus`` follows them.
    """
    w = {name: np.array(x) for name, x in tree.tree_flatten(head.parameters())}
    config, ids = head.config, head.ids or range(head.config.vocab_size)
    table = w["embed_tokens.weight"] if config.own_embeddings else embed
    if config.norm_before_fc:
        taps = norm(taps, w["input_norm.weight"])
    if config.fc_norm:
        parts = np.split(taps, 3, axis=-1)
        taps = np.concatenate([norm(x, w[f"fc_norm.{i}.weight"]) for i, x in enumerate(parts)], axis=-1)
    features = list(taps @ w["fc.weight"].T)
    after = [*tokens[1:], bonus]  # the token after each feature's position
    drafts, scores = [], []
    for _ in range(n):
        out = _layer(w, config, table[after], np.stack(features))[-1]
        scores.append(norm(out, w["norm.weight"]) @ w["lm_head.weight"].T)
        drafts.append(ids[int(scores[-1].argmax())])
        after.append(drafts[-1])
        features.append(norm(out, w["norm.weight"]) if config.norm_feedback else out)
    return drafts, np.stack(scores)


def norm(x, weight, eps=1e-6):
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps) * weight


def _layer(w, config, embedded, features):
    """The layer over all rows at once, each of which sees the rows before it."""
    name, dim, rows = "layers.0.", config.head_dim, len(features)
    normed = norm(features, w[f"{name}hidden_norm.weight"])
    x = np.concatenate([norm(embedded, w[f"{name}input_layernorm.weight"]), normed], axis=-1)
    q, k, v = ((x @ w[f"{name}self_attn.{part}_proj.weight"].T).reshape(rows, -1, dim) for part in "qkv")
    if config.qk_norm:
        q, k = (norm(part, w[f"{name}self_attn.{n}_norm.weight"]) for part, n in ((q, "q"), (k, "k")))
    q, k = (turned(part, config.rope_theta) for part in (q, k))
    groups = config.num_attention_heads // config.num_key_value_heads
    k, v = (np.repeat(part, groups, axis=1) for part in (k, v))
    scores = np.einsum("ahd,bhd->hab", q, k) / np.sqrt(dim)
    scores = np.where(np.tri(rows, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    attended = np.einsum("hab,bhd->ahd", weights, v).reshape(rows, -1)
    y = (normed if config.norm_before_residual else features) + attended @ w[
        f"{name}self_attn.o_proj.weight"
    ].T
    h = norm(y, w[f"{name}post_attention_layernorm.weight"])
    gate, up = (h @ w[f"{name}mlp.{part}_proj.weight"].T for part in ("gate", "up"))
    return y + (gate / (1 + np.exp(-gate)) * up) @ w[f"{name}mlp.down_proj.weight"].T


def turned(x, base, part=1.0):
    """Rotate the first part of each head by its row's position."""
    rows, _, dim = x.shape
    size = int(dim * part)
    angle = np.arange(rows)[:, None] * base ** (-np.arange(0, size, 2) / size)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    a, b, rest = x[..., : size // 2], x[..., size // 2 : size], x[..., size:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], axis=-1)


def mtp_in_numpy(head, target, tokens, states, bonus, n):
    """Return n drafts and their logits, by the description of Qwen's MTP head.

    ``states`` are the target's after its last norm, ``[len(tokens), hidden]``.
    """
    w = {name: np.array(x) for name, x in tree.tree_flatten(head.parameters())}
    table, out_head = np.array(target.model.embed_tokens.weight), np.array(target.lm_head.weight)
    features, after, drafts, scores = list(states), [*tokens[1:], bonus], [], []
    for _ in range(n):
        embedded = norm(table[after], w["pre_fc_norm_embedding.weight"])
        before = norm(np.stack(features), w["pre_fc_norm_hidden.weight"])
        out = _gated(w, head.config.target, np.concatenate([embedded, before], axis=-1) @ w["fc.weight"].T)[
            -1
        ]
        features.append(norm(out, w["norm.weight"]))
        scores.append(features[-1] @ out_head.T)
        drafts.append(int(scores[-1].argmax()))
        after.append(drafts[-1])
    return drafts, np.stack(scores)


def _gated(w, config, x):
    """Qwen's layer of full attention: gated output, norms of heads, a part of each head rotated."""
    name, dim, rows = "layers.0.", config["head_dim"], len(x)
    h = norm(x, w[f"{name}input_layernorm.weight"])
    both = (h @ w[f"{name}self_attn.q_proj.weight"].T).reshape(rows, -1, 2 * dim)
    q, gate = both[..., :dim], both[..., dim:]
    k, v = ((h @ w[f"{name}self_attn.{part}_proj.weight"].T).reshape(rows, -1, dim) for part in "kv")
    q, k = (norm(part, w[f"{name}self_attn.{n}_norm.weight"]) for part, n in ((q, "q"), (k, "k")))
    q, k = (turned(part, 100000.0, 0.25) for part in (q, k))
    k, v = (np.repeat(part, q.shape[1] // part.shape[1], axis=1) for part in (k, v))
    scores = np.einsum("ahd,bhd->hab", q, k) / np.sqrt(dim)
    scores = np.where(np.tri(rows, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    attended = np.einsum("hab,bhd->ahd", weights, v) / (1 + np.exp(-gate))
    y = x + attended.reshape(rows, -1) @ w[f"{name}self_attn.o_proj.weight"].T
    h = norm(y, w[f"{name}post_attention_layernorm.weight"])
    gate, up = (h @ w[f"{name}mlp.{part}_proj.weight"].T for part in ("gate", "up"))
    return y + (gate / (1 + np.exp(-gate)) * up) @ w[f"{name}mlp.down_proj.weight"].T
