"""The first Qwen: Qwen2 under other names ("Qwen Technical Report", 2023).

Beyond the length of its training texts it changes the base of rotary positions and scales queries,
so this is the longest context here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import (
    DecoderConfig,
    from_config_json,
    from_gguf_metadata,
)
from hearthd.models.decoder.tensor_names import JOINED_HEADS, QUERIES_KEYS_VALUES, TensorNames
from hearthd.models.families.llama import Llama

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata

_TRAINED = 8192  # tokens of the longest texts that published models were trained with


def from_hugging_face(data: ConfigJson) -> DecoderConfig:
    """Read config.json; `intermediate_size` counts the rows of gates and of the others."""
    data.rename(
        kv_channels="head_dim", layer_norm_epsilon="rms_norm_eps", rotary_emb_base="rope_theta"
    )
    data.fixed(no_bias=True, rotary_pct=1.0, scale_attn_weights=True)
    data.ignore(
        "attn_dropout_prob", "bf16", "emb_dropout_prob", "fp16", "fp32", "onnx_safe",
        "softmax_in_fp32", "tokenizer_class", "tokenizer_type", "use_cache_kernel",
        "use_cache_kernel_quantization", "use_cache_quantization", "use_dynamic_ntk",
        "use_flash_attn", "use_logn_attn",
    )  # fmt: skip
    fields = from_config_json(data, ffn=data.size("intermediate_size") // 2)
    trained = data.size("seq_length", default=_TRAINED)
    return DecoderConfig(
        **fields | {"attention_bias": True, "max_context": min(fields["max_context"], trained)}
    )


def from_gguf(data: GgufMetadata) -> DecoderConfig:
    """Read GGUF metadata."""
    fields = from_gguf_metadata(data, ffn=data.size("feed_forward_length") // 2)
    return DecoderConfig(**fields | {"max_context": min(fields["max_context"], _TRAINED)})


ARCHITECTURE = Architecture(
    name="qwen",
    config=DecoderConfig,
    model_types=("qwen",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Llama,
    tensors=TensorNames(
        prefixes=("transformer.",),
        layers="h",
        folder={
            "input_layernorm": "ln_1",
            "self_attn.o_proj": "attn.c_proj",
            "post_attention_layernorm": "ln_2",
            "mlp.gate_proj": "mlp.w2",
            "mlp.up_proj": "mlp.w1",
            "mlp.down_proj": "mlp.c_proj",
            "embed_tokens": "wte",
            "norm": "ln_f",
        },
        joined={"attn.c_attn": QUERIES_KEYS_VALUES},
        grouped=(JOINED_HEADS,),
        masks=("rotary_emb.inv_freq", "attn.masked_bias"),
    ),
)
