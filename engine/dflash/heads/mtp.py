"""The MTP head of Qwen3-Next and Qwen3.5: a layer of the target's own kind, in the target's checkpoint.

A row joins the normed embedding of a token with the normed state of the position before it. That state is the target's
after its last norm, and for drafted tokens the head's own after its last norm. Embeddings and output head are the
target's. The layer is mlx-lm's, of full attention.
"""

from dataclasses import dataclass, replace
from typing import Any

from engine.checkpoints.files import text_config
from engine.dflash.heads.chain import BoundHead
from engine.dflash.target.cpu_fast_path import quick_copy
from engine.dflash.target.embeddings import TargetEmbeddings
from engine.dflash.target.small_gemm import with_products
from engine.errors import BadInput
from engine.lm import architecture
from engine.mx import mx, nn

# The models whose head is known, with mlx-lm's classes: module, arguments, layer.
MODELS = {
    "qwen3_next": ("qwen3_next", "ModelArgs", "Qwen3NextDecoderLayer"),
    **dict.fromkeys(
        ("qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"),
        ("qwen3_5", "TextModelArgs", "DecoderLayer"),
    ),
}
SPLIT = "_mtp"  # at the end of the model type of a head in a folder of its own
ROWS, MOST_ROWS = 4, 8  # to verify at once, if the checkpoint does not say; and at most
FIX = "take the original checkpoint of a Qwen3-Next or Qwen3.5, or its head in a folder of its own"
DEPTHS = ("mtp_num_hidden_layers", "num_nextn_predict_layers")


@dataclass(frozen=True)
class MtpConfig:
    """A head's configuration: that of its target, and the most rows of a round."""

    target: dict[str, Any]
    verified_rows: int = ROWS

    cuts = False
    confidence_threshold = 0.0

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "MtpConfig":
        """Read the configuration of a target, or of a head that was split off; BadInput if its head is not known."""
        kind = str(data.get("model_type"))
        config = text_config(data)
        base = config["model_type"] if isinstance(data.get("text_config"), dict) else kind
        config = {**config, "model_type": str(base).removesuffix(SPLIT)}
        if config["model_type"] not in MODELS:
            raise BadInput(f"no MTP head is known for the model type {kind}", FIX)
        for name in DEPTHS:
            if config.get(name) not in (None, 1):
                raise BadInput(f"{name} is {config[name]!r}: only heads of one layer are known here", FIX)
        if config.get("mtp_use_dedicated_embeddings"):
            raise BadInput("the head has embeddings of its own, which is not known here", FIX)
        for name in ("hidden_size", "vocab_size", "num_attention_heads", "num_hidden_layers"):
            if type(config.get(name)) is not int or config[name] < 1:
                raise BadInput(f"{name} is {config.get(name)!r}, not a whole number of at least 1", FIX)
        rows = data.get("block_size") if kind.endswith(SPLIT) else None
        return cls(config, min(max(rows, 2), MOST_ROWS) if type(rows) is int else ROWS)

    @property
    def hidden_size(self) -> int:
        """Values of a state, the target's."""
        size: int = self.target["hidden_size"]
        return size

    @property
    def vocab_size(self) -> int:
        """The target's vocabulary."""
        size: int = self.target["vocab_size"]
        return size

    @property
    def bytes_a_token(self) -> int:
        """Bytes that the context keeps for each accepted token, in float32."""
        heads = self.target["num_attention_heads"]
        dim = self.target.get("head_dim") or self.hidden_size // heads
        return int(2 * (self.target.get("num_key_value_heads") or heads) * dim * 4)


class Mtp(nn.Module):
    """An MTP head's weights, under their published names without ``mtp.``."""

    kind = "mtp"

    def __init__(self, config: MtpConfig) -> None:
        super().__init__()
        self.config = config
        name, arguments, layer = MODELS[config.target["model_type"]]
        module = architecture(name)
        args = getattr(module, arguments).from_dict(config.target)
        eps, size = args.rms_norm_eps, config.hidden_size
        self.fc = nn.Linear(2 * size, size, bias=False)
        self.pre_fc_norm_embedding = nn.RMSNorm(size, eps=eps)
        self.pre_fc_norm_hidden = nn.RMSNorm(size, eps=eps)
        self.layers = [getattr(module, layer)(replace(args, full_attention_interval=1), 0)]
        self.norm = nn.RMSNorm(size, eps=eps)

    def layer_ids(self, target: nn.Module) -> tuple[int, ...]:
        """Return the layer of a target whose output the head reads: the last one."""
        return (TargetEmbeddings.of(target).layers - 1,)

    def bind(self, target: nn.Module) -> BoundHead:
        """Return this head with a target's embeddings, norm and output head; BadInput if it is another target's."""
        parts = TargetEmbeddings.of(with_products(target))
        parts.check_sizes(
            self.config.target["num_hidden_layers"], self.config.hidden_size, self.config.vocab_size
        )
        if parts.norm is None:
            raise BadInput(
                "the norm before the target's output head is not found", "take an mlx-lm model of Qwen's"
            )
        return BoundHead(BoundMtp(self, parts, parts.norm))


class BoundMtp:
    """The head's computations, with the target's parts."""

    def __init__(self, head: Mtp, parts: TargetEmbeddings, norm: Any) -> None:
        self.parts, self.norm = parts, norm
        self.model: Any = quick_copy(head)
        self.taps_size = self.hidden_size = head.config.hidden_size

    def feature(self, taps: mx.array) -> mx.array:
        """Return the target's states after its last norm."""
        normed: mx.array = self.norm(taps)
        return normed

    def step(self, tokens: mx.array, features: mx.array, mask: Any, cache: Any) -> mx.array:
        """Return the head's states, normed."""
        model = self.model
        embedded, before = (
            model.pre_fc_norm_embedding(self.parts.embed(tokens)),
            model.pre_fc_norm_hidden(features),
        )
        x = model.fc(mx.concatenate([embedded, before], axis=-1))
        out: mx.array = model.norm(model.layers[0](x, mask, cache))
        return out

    def logits(self, output: mx.array) -> mx.array:
        """Return the logits over the target's vocabulary."""
        return self.parts.head(output)

    def recycled(self, output: mx.array) -> mx.array:
        """Return the state itself, which is normed already."""
        return output

    def target_ids(self, drafts: mx.array) -> mx.array:
        """Return the drafts: the vocabulary is the target's."""
        return drafts.astype(mx.int32)

    def candidates(self) -> None:
        """Return None: the vocabulary is the target's."""
