"""DeepSeek-V3.2: the layers of DeepSeek-V3, with an index that chooses the tokens that are read.

Source: the model `deepseek_v32` of transformers (2026).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hearthd.models.decoder.architecture import Architecture
from hearthd.models.dsl.functions.routing import SIGMOID
from hearthd.models.families import deepseek2
from hearthd.models.families.deepseek2 import Config, Deepseek2

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    data.assume(first_k_dense_replace=3, norm_topk_prob=True)
    data.ignore(
        "index_head_dim", "index_n_heads", "index_skip_topk_offset", "index_topk_freq",
        "index_topk_pattern", "indexer_rope_interleave", "indexer_types",
    )  # fmt: skip
    fields = deepseek2.fields_from_hugging_face(data, SIGMOID)
    data.fixed(layer_types=["indexed_attention"] * fields["layers"])
    return _within(data.size("index_topk"), fields)


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata."""
    data.ignore(*(f"attention.indexer.{key}" for key in ("head_count", "key_length", "types")))
    fields = deepseek2.fields_from_gguf(data)
    return _within(data.size("attention.indexer.top_k"), fields)


def _within(chosen: int, fields: dict[str, Any]) -> Config:
    """The configuration for contexts in which the index chooses every token."""
    return Config(**fields | {"max_context": min(chosen, fields["max_context"])})


_INDEX = {
    "self_attn.indexer.k_norm": "indexer.k_norm",
    "self_attn.indexer.weights_proj": "indexer.proj",
    "self_attn.indexer.wk": "indexer.attn_k",
    "self_attn.indexer.wq_b": "indexer.attn_q_b",
}
_OF_DEEPSEEK = deepseek2.ARCHITECTURE.tensors
ARCHITECTURE = Architecture(
    name="deepseek32",
    config=Config,
    model_types=("deepseek_v32",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Deepseek2,
    tensors=replace(_OF_DEEPSEEK, gguf={**_OF_DEEPSEEK.gguf, **_INDEX}, optional=(*_INDEX,)),
)
