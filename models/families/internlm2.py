"""InternLM 2 and 2.5: Llama under other names, with one tensor of queries, keys and values.

Source: "InternLM2 Technical Report" (2024).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hearthd.models.decoder.config.decoder_config import DecoderConfig, from_config_json
from hearthd.models.decoder.tensor_names import heads_by_key
from hearthd.models.families import llama

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson


def from_hugging_face(data: ConfigJson) -> DecoderConfig:
    """Read config.json."""
    data.fixed(bias=False)
    data.ignore("attn_implementation")
    return DecoderConfig(**from_config_json(data))


ARCHITECTURE = replace(
    llama.ARCHITECTURE,
    name="internlm2",
    model_types=("internlm2",),
    read_config_json=from_hugging_face,
    tensors=replace(
        llama.ARCHITECTURE.tensors,
        folder={
            "input_layernorm": "attention_norm",
            "self_attn.o_proj": "attention.wo",
            "post_attention_layernorm": "ffn_norm",
            "mlp.gate_proj": "feed_forward.w1",
            "mlp.up_proj": "feed_forward.w3",
            "mlp.down_proj": "feed_forward.w2",
            "embed_tokens": "tok_embeddings",
            "lm_head": "output",
        },
        grouped=(heads_by_key("attention.wqkv"),),
    ),
)
