"""Jina's second BERT for code: queries and keys are normalized, and the sum behind attention twice.

Source: the definition of jinaai/jina-embeddings-v2-base-code.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn
from hearthd.models.encoder.encoder_architecture import EncoderArchitecture
from hearthd.models.families import jina_bert
from hearthd.models.families.jina_bert import JINA_NAMES, Config, JinaBert, JinaBertBlock

if TYPE_CHECKING:
    from hearthd.models.decoder.kv_cache import LayerCache
    from hearthd.models.dsl.graph import Tensor


class NormalizedAttention(nn.Module):
    """Attention whose queries and keys are normalized over all heads."""

    def __init__(self, config: Config) -> None:
        self.width, hidden = config.head_dim, config.hidden
        self.q_proj = nn.Linear(hidden, hidden, bias=True)
        self.k_proj = nn.Linear(hidden, hidden, bias=True)
        self.v_proj = nn.Linear(hidden, hidden, bias=True)
        self.q_norm = nn.LayerNorm(hidden, config.norm_eps)
        self.k_norm = nn.LayerNorm(hidden, config.norm_eps)
        self.o_proj = nn.Linear(hidden, hidden, bias=True)

    def __call__(self, x: Tensor, text: LayerCache) -> Tensor:
        """(N, E) -> (N, E)."""
        rows = self.q_norm(self.q_proj(x)), self.k_norm(self.k_proj(x)), self.v_proj(x)
        query, key, value = (f.split_heads(row, self.width) for row in rows)
        return self.o_proj(text.attend(query, key, value, scale=self.width**-0.5))


class JinaCodeBlock(JinaBertBlock):
    """One layer: the input of attention is added twice, each time before a norm."""

    attention = NormalizedAttention

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.sum_norm = nn.LayerNorm(config.hidden, config.norm_eps)

    @override
    def __call__(self, h: Tensor, text: LayerCache) -> Tensor:
        """(N, E) -> (N, E)."""
        h = self.sum_norm(h + self.attention_norm(h + self.self_attn(h, text)))
        return self.output_norm(h + self.mlp(h))


class JinaBertCode(JinaBert):
    """The encoder."""

    block = JinaCodeBlock


ARCHITECTURE = EncoderArchitecture(
    name="jina-bert-v2-code",
    config=Config,
    model_types=("bert",),
    gguf_name="jina-bert-v2",
    read_config_json=partial(jina_bert.from_hugging_face, for_code=True),
    read_gguf=partial(jina_bert.from_gguf, for_code=True),
    model=JinaBertCode,
    tensors=replace(
        JINA_NAMES,
        gguf={
            **JINA_NAMES.gguf,
            "self_attn.q_norm": "attn_q_norm",
            "self_attn.k_norm": "attn_k_norm",
            "sum_norm": "attn_norm_2",
        },
        folder={
            **JINA_NAMES.folder,
            "self_attn.q_norm": "attention.self.layer_norm_q",
            "self_attn.k_norm": "attention.self.layer_norm_k",
            "sum_norm": "layer_norm_1",
            "mlp.down_proj": "mlp.down_layer",
            "output_norm": "layer_norm_2",
        },
        joined={"mlp.up_gated_layer": ("mlp.up_proj", "mlp.gate_proj")},
        joined_in_gguf={"ffn_up": ("ffn_up", "ffn_gate")},
    ),
)
