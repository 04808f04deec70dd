"""GPT-2: LayerNorm, biases, an MLP without a gate, and a learned vector for each position.

Source: "Language Models are Unsupervised Multitask Learners" (2019).
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
from hearthd.models.decoder.layers import Attention, Block, DecoderModel, PlainMLP
from hearthd.models.decoder.tensor_names import (
    GGUF_NAMES,
    JOINED_HEADS,
    QUERIES_KEYS_VALUES,
    TensorNames,
)
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn, ops

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.kv_cache import LayerCache
    from hearthd.models.decoder.layers import RopeTable
    from hearthd.models.dsl.graph import Tensor


class Gpt2(DecoderModel):
    """Blocks with LayerNorm, whose heads have no rotary positions."""

    def __init__(
        self, config: DecoderConfig, activation: Callable[[Tensor], Tensor] = f.gelu_tanh
    ) -> None:
        blocks = [
            Block(config, Attention(config), PlainMLP(config, activation), nn.LayerNorm)
            for _ in range(config.layers)
        ]
        super().__init__(config, blocks)
        self.embed_positions = nn.Embedding(config.max_context, config.hidden)
        self.norm = nn.LayerNorm(config.hidden, config.norm_eps)

    @override
    def rope_tables(self, positions: Tensor) -> list[RopeTable | None]:
        """None for each layer."""
        return [None] * self.config.layers

    @override
    def __call__(
        self, tokens: Tensor, positions: Tensor, caches: list[LayerCache], h: Tensor | None = None
    ) -> Tensor:
        """Tokens i32 (N,) at positions i32 (N,) -> normalized hidden states (N, E)."""
        h = self.embed(tokens) if h is None else h
        h = h + ops.gather(self.embed_positions.weight, positions, axis=0)
        return super().__call__(tokens, positions, caches, h)


def from_hugging_face(data: ConfigJson) -> DecoderConfig:
    """Read config.json."""
    data.fixed(activation_function="gelu_new", scale_attn_by_inverse_layer_idx=False)
    data.ignore("reorder_and_upcast_attn")
    return DecoderConfig(**fields_from_hugging_face(data))


def fields_from_hugging_face(data: ConfigJson) -> dict[str, Any]:
    """The fields of `DecoderConfig` from config.json of GPT-2's kind; raises ConfigError."""
    data.rename(
        layer_norm_epsilon="rms_norm_eps",
        n_embd="hidden_size",
        n_head="num_attention_heads",
        n_inner="intermediate_size",
        n_layer="num_hidden_layers",
        n_positions="max_position_embeddings",
    )
    data.assume(rms_norm_eps=1e-5, tie_word_embeddings=True)
    data.fixed(scale_attn_weights=True, add_cross_attention=False)
    data.ignore("attn_pdrop", "n_ctx", "task_specific_params")
    parts = ("activation", "first_dropout", "proj_to_labels", "type", "use_proj")
    data.ignore(*(f"summary_{part}" for part in parts))
    ffn = data.size("intermediate_size", default=4 * data.size("hidden_size"))
    biases = dict.fromkeys(("attention_bias", "output_bias", "mlp_bias"), True)
    return from_config_json(data, ffn=ffn) | biases


ARCHITECTURE = Architecture(
    name="gpt2",
    config=DecoderConfig,
    model_types=("gpt2",),
    read_config_json=from_hugging_face,
    read_gguf=lambda data: DecoderConfig(**from_gguf_metadata(data)),
    model=Gpt2,
    tensors=TensorNames(
        gguf={**GGUF_NAMES, "embed_positions": "position_embd"},
        prefixes=("transformer.", ""),
        layers="h",
        folder={
            "input_layernorm": "ln_1",
            "self_attn.o_proj": "attn.c_proj",
            "post_attention_layernorm": "ln_2",
            "mlp.up_proj": "mlp.c_fc",
            "mlp.down_proj": "mlp.c_proj",
            "embed_tokens": "wte",
            "embed_positions": "wpe",
            "norm": "ln_f",
        },
        masks=("attn.bias", "attn.masked_bias"),
        joined={"attn.c_attn": QUERIES_KEYS_VALUES},
        transposed_in_folder=tuple(
            f"{part}.weight"
            for part in ("attn.c_attn", "self_attn.o_proj", "mlp.up_proj", "mlp.down_proj")
        ),
        grouped=(JOINED_HEADS,),
    ),
)
