"""Attention whose keys and values are projections of one latent vector of a token.

Source: "DeepSeek-V2" (2024), in the form where the projections are a part of the queries and of the
results: a cache holds latent vectors alone. In shape comments `N` is sequences x tokens, `E` the
hidden width, `H` heads, `L` the width of a latent vector, `R` rotary columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.config import ConfigError
from hearthd.models.decoder.config.config_json import ConfigJson
from hearthd.models.decoder.config.decoder_config import DecoderConfig, from_config_json
from hearthd.models.decoder.config.rope_scaling import yarn_magnitude
from hearthd.models.decoder.layers import HeadLinear, rotated, scaled_by_position
from hearthd.models.decoder.tensor_names import GroupedRows
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn, ops
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hearthd.models.decoder.config.rope_scaling import Rope
    from hearthd.models.decoder.kv_cache import LayerCache
    from hearthd.models.decoder.layers import RopeTable
    from hearthd.models.dsl.graph import Tensor

_EPS = 1e-6  # of the norms inside, whatever `norm_eps` is, as in transformers


@dataclass(frozen=True, kw_only=True)
class LatentConfig(DecoderConfig):
    """The shape of a decoder with latent vectors.

    The caches have one head, of L + R columns, which are `head_dim`.

    query_rank       width of the latent vector that queries are projected from; None: they are
                     projected from hidden states
    latent           L
    rotary_width     R
    key_width        columns of a head of queries and keys that do not turn
    value_width      columns of a head of values
    attention_scale  factor of q k^T
    turns_neighbors  whether the columns 2i and 2i + 1 turn together, in place of i and i + R / 2
    """

    query_rank: int | None
    latent: int
    rotary_width: int
    key_width: int
    value_width: int
    attention_scale: float
    turns_neighbors: bool

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rotary_width % 2 or self.head_dim != self.latent + self.rotary_width:
            raise ConfigError(
                f"qk_rope_head_dim: expected an even number, and heads of {self.latent} more "
                f"columns, got {self.rotary_width} and heads of {self.head_dim}"
            )


class LatentAttention(nn.Module):
    """Attention of all heads over the latent vectors of tokens and their rotary columns."""

    def __init__(self, config: LatentConfig) -> None:
        self.config, heads, bias = config, config.heads, config.attention_bias
        width, rank = config.key_width + config.rotary_width, config.query_rank
        if rank is None:
            self.q_proj = HeadLinear(config.hidden, heads, width)
        else:
            self.q_a_proj = nn.Linear(config.hidden, rank, bias=bias)
            self.q_a_layernorm = nn.RMSNorm(rank, _EPS)
            self.q_b_proj = HeadLinear(rank, heads, width)
        self.kv_a_proj_with_mqa = nn.Linear(config.hidden, config.head_dim, bias=bias)
        self.kv_a_layernorm = nn.RMSNorm(config.latent, _EPS)
        self.k_b_proj = nn.RoutedLinear(heads, config.key_width, config.latent)
        self.v_b_proj = nn.RoutedLinear(heads, config.latent, config.value_width)
        inner = heads * config.value_width
        self.o_proj = nn.Linear(inner, config.hidden, bias=config.output_bias)

    def __call__(self, x: Tensor, rope: RopeTable | None, cache: LayerCache) -> Tensor:
        """(N, E) -> (N, E)."""
        config = self.config
        query, latent = self._queries(x), self.kv_a_proj_with_mqa(x)
        plain, turning = f.split(query, [config.key_width, config.rotary_width], axis=2)
        latent, shared = f.split(latent, [config.latent, config.rotary_width], axis=1)
        vector = f.split_heads(self.kv_a_layernorm(latent), config.latent)
        shared = self._turned(f.split_heads(shared, config.rotary_width), rope)
        query = self._of_heads(self.k_b_proj, plain)
        query = ops.concatenate(query, self._turned(turning, rope), axis=2)
        mixed = cache.attend(
            scaled_by_position(query, rope),
            ops.concatenate(vector, shared, axis=2),
            ops.concatenate(vector, ops.full_like(shared, 0.0), axis=2),
            scale=config.attention_scale,
        )
        mixed = f.narrow(f.split_heads(mixed, config.head_dim), 2, 0, config.latent)
        heads = self.gated(x, self._of_heads(self.v_b_proj, mixed))
        return self.o_proj(f.flatten(heads, first=1))

    def gated(self, _: Tensor, heads: Tensor) -> Tensor:
        """The results of heads (N, H, value_width) for hidden states (N, E), times their gates."""
        return heads

    def _queries(self, x: Tensor) -> Tensor:
        """(N, E) -> (N, H, key_width + R)."""
        if self.config.query_rank is None:
            return self.q_proj(x)
        return self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x)))

    def _turned(self, heads: Tensor, rope: RopeTable | None) -> Tensor:
        """Rotary columns (N, heads, R), rotated: each half of the columns that turn together."""
        if self.config.turns_neighbors:
            tokens, count, width = heads.shape
            pairs = ops.reshape(heads, shape=(tokens, count, width // 2, 2))
            heads = ops.reshape(f.transpose(pairs, 2, 3), shape=heads.shape)
        return rotated(heads, rope)

    def _of_heads(self, matrices: nn.RoutedLinear, x: Tensor) -> Tensor:
        """Heads (N, H, inputs), each times a matrix of its own: (N, H, outputs)."""
        tokens, heads, width = x.shape
        head = f.flatten(ops.iota(shape=(tokens, heads), axis=1, dtype=DType.I32))
        y = matrices(ops.reshape(x, shape=(tokens * heads, width)), head)
        return ops.reshape(y, shape=(tokens, heads, y.shape[1]))


class GatedLatentAttention(LatentAttention):
    """Latent attention whose heads are each multiplied by a number from 0 to 1."""

    def __init__(self, config: LatentConfig) -> None:
        super().__init__(config)
        self.gate_proj = nn.Linear(config.hidden, config.heads)

    @override
    def gated(self, x: Tensor, heads: Tensor) -> Tensor:
        gates = ops.broadcast(self.gate_proj(x), shape=heads.shape, axes=(0, 1))
        return f.gated_heads(gates, heads)


def latent_fields(
    data: ConfigJson,
    read_rope: Callable[[ConfigJson, int, int], Rope] = ConfigJson.rope,
    *,
    activation: str = "silu",
) -> dict[str, Any]:
    """The fields of `LatentConfig` from config.json, of a model that turns neighbors.

    For `read_rope` and `activation` see `from_config_json`. Raises ConfigError.
    """
    rotary, latent = data.size("qk_rope_head_dim"), data.size("kv_lora_rank")
    section, _ = data.rope_section()
    every_dim = section.number("mscale_all_dim", default=None)
    magnitude = 1.0
    if every_dim is not None:
        magnitude = yarn_magnitude(section.number("factor"), every_dim)
    key_width = data.size("qk_nope_head_dim")
    data.ignore("qk_head_dim")
    return {
        **from_config_json(
            data, lambda data, _, most: read_rope(data, rotary, most), activation=activation
        ),
        "kv_heads": 1,
        "head_dim": latent + rotary,
        "query_rank": data.size("q_lora_rank", default=None),
        "latent": latent,
        "rotary_width": rotary,
        "key_width": key_width,
        "value_width": data.size("v_head_dim"),
        "attention_scale": magnitude**2 * (key_width + rotary) ** -0.5,
        "turns_neighbors": True,
    }


def _rows(config: LatentConfig) -> tuple[int, tuple[int, ...]]:
    """Heads, and the rows of each in the matrix that gives keys and values."""
    return config.heads, (config.key_width, config.value_width)


# Both in one matrix. A head's rows for keys project the latent vector to keys.
KEYS_AND_VALUES = GroupedRows(
    folder="self_attn.kv_b_proj",
    gguf="attn_kv_b",
    parts=("self_attn.k_b_proj", "self_attn.v_b_proj"),
    shape=_rows,
    transposed=("self_attn.k_b_proj",),
)
LATENT_GGUF_NAMES: Mapping[str, str] = {
    "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.k_b_proj": "attn_k_b",
    "self_attn.v_b_proj": "attn_v_b",
}
