"""Hunyuan (dense): Llama whose heads are normalized after rotation.

Source: the model `hunyuan_v1_dense` of transformers (2025).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import (
    DecoderConfig,
    from_config_json,
    from_gguf_metadata,
)
from hearthd.models.decoder.config.rope_scaling import Rope
from hearthd.models.decoder.layers import (
    MLP,
    Attention,
    Block,
    DecoderModel,
    NormedAttention,
    rotated,
)
from hearthd.models.decoder.tensor_names import TensorNames

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.kv_cache import LayerCache
    from hearthd.models.decoder.layers import RopeTable
    from hearthd.models.dsl.graph import Tensor


class HunyuanAttention(NormedAttention):
    """Attention that rotates each head of queries and keys, then normalizes it."""

    @override
    def __call__(self, x: Tensor, rope: RopeTable | None, cache: LayerCache) -> Tensor:
        """(N, E) -> (N, E)."""
        query, key, value = Attention.heads(self, x)
        query, key = self.q_norm(rotated(query, rope)), self.k_norm(rotated(key, rope))
        return self.o_proj(cache.attend(query, key, value, scale=self.scale))


class Hunyuan(DecoderModel):
    """Blocks with such attention."""

    def __init__(self, config: DecoderConfig) -> None:
        attention = (HunyuanAttention(config) for _ in range(config.layers))
        super().__init__(config, [Block(config, layer, MLP(config)) for layer in attention])


def from_hugging_face(data: ConfigJson) -> DecoderConfig:
    """Read config.json."""
    data.fixed(use_mixed_mlp_moe=False, num_experts=1)
    return DecoderConfig(**fields_from_hugging_face(data))


def fields_from_hugging_face(data: ConfigJson) -> dict[str, Any]:
    """The fields of `DecoderConfig`; raises ConfigError."""
    data.fixed(use_qk_norm=True, use_rotary_pos_emb=True, use_cla=False, norm_type="rms")
    data.ignore("eod_token_id", "org_vocab_size", "mask_init_id", "sep_token_id")
    fields = from_config_json(data, _rope)
    data.fixed(attention_head_dim=fields["head_dim"])
    return fields


def _rope(data: ConfigJson, width: int, max_context: int) -> Rope:
    """The rotary positions: a fixed `alpha` changes the base, and not with the length of a text."""
    section, base = data.rope_section()
    if section.text("rope_type", default=section.text("type", default="")) != "dynamic":
        return data.rope(width, max_context)
    # transformers does not read these keys beside an alpha.
    section.ignore("beta_fast", "beta_slow", "factor", "mscale", "mscale_all_dim", "type")
    section.ignore("original_max_position_embeddings")
    return Rope(base=float(base * section.number("alpha") ** (width / (width - 2))))


ARCHITECTURE = Architecture(
    name="hunyuan-dense",
    config=DecoderConfig,
    model_types=("hunyuan_v1_dense",),
    read_config_json=from_hugging_face,
    read_gguf=lambda data: DecoderConfig(**from_gguf_metadata(data)),
    model=Hunyuan,
    tensors=TensorNames(
        folder={"self_attn.q_norm": "self_attn.query_layernorm"}
        | {"self_attn.k_norm": "self_attn.key_layernorm"},
    ),
)
