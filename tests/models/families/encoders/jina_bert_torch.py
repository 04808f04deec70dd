"""Jina's second BERT in PyTorch, by its paper: transformers has no such model.

The names of modules, and the order of the halves of a gated matrix, are the published ones: gate
and up in the models for text, up and gate in the models for code.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from transformers import BertConfig, PreTrainedModel


class JinaBertConfig(BertConfig):  # type: ignore[misc]
    """BERT's, with what published files have besides."""

    def __init__(self, for_code: bool = False, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.position_embedding_type = "alibi"
        self.feed_forward_type = "geglu"
        self.emb_pooler = "mean"
        self.model_max_length = 8192
        kind = "jina-bert-v2-qk-post-norm" if for_code else "jina-bert-implementation"
        usual = {"AutoConfig": f"jinaai/{kind}--configuration_bert.JinaBertConfig"}
        self.auto_map = arguments.get("auto_map", usual)

    @property
    def is_for_code(self) -> bool:
        """Whether the layers are of the model for code."""
        return "qk-post-norm" in self.auto_map["AutoConfig"]


class _Module(nn.Module):  # type: ignore[misc]
    """The modules that are given, by their names."""

    def __init__(self, /, **modules: nn.Module) -> None:
        super().__init__()
        for name, module in modules.items():
            self.add_module(name, module)


def _layer(config: JinaBertConfig) -> nn.Module:
    width, inner, eps = config.hidden_size, config.intermediate_size, config.layer_norm_eps
    projections = {name: nn.Linear(width, width) for name in ("query", "key", "value")}
    output = _Module(dense=nn.Linear(width, width), LayerNorm=nn.LayerNorm(width, eps))
    gated = nn.Linear(width, 2 * inner, bias=False)
    if config.is_for_code:
        norms = {f"layer_norm_{name}": nn.LayerNorm(width, eps) for name in "qk"}
        return _Module(
            attention=_Module(self=_Module(**projections, **norms), output=output),
            layer_norm_1=nn.LayerNorm(width, eps),
            mlp=_Module(up_gated_layer=gated, down_layer=nn.Linear(inner, width)),
            layer_norm_2=nn.LayerNorm(width, eps),
        )
    return _Module(
        attention=_Module(self=_Module(**projections), output=output),
        mlp=_Module(
            gated_layers=gated, wo=nn.Linear(inner, width), layernorm=nn.LayerNorm(width, eps)
        ),
    )


def _attend(config: JinaBertConfig, x: torch.Tensor, parts: Any) -> torch.Tensor:
    count, heads = x.shape[0], config.num_attention_heads
    query, key, value = parts.query(x), parts.key(x), parts.value(x)
    if config.is_for_code:
        query, key = parts.layer_norm_q(query), parts.layer_norm_k(key)
    query, key, value = (y.view(count, heads, -1).transpose(0, 1) for y in (query, key, value))
    scores = query @ key.transpose(1, 2) / query.shape[-1] ** 0.5
    position = torch.arange(count)
    distance = (position[:, None] - position[None, :]).abs()
    scores = scores - torch.tensor(_slopes(heads))[:, None, None] * distance
    return (scores.softmax(-1) @ value).transpose(0, 1).reshape(count, -1)


def _slopes(heads: int) -> list[float]:
    """The geometric sequence that starts at its ratio, 2^(-8 / heads), for a power of two."""
    if heads & (heads - 1) == 0:
        return [2 ** (-8 / heads * (head + 1)) for head in range(heads)]
    power = 2 ** (heads.bit_length() - 1)
    return _slopes(power) + _slopes(2 * power)[::2][: heads - power]


class JinaBertModel(PreTrainedModel):  # type: ignore[misc]
    """Hidden states of a text, without a pooler."""

    config_class = JinaBertConfig

    def __init__(self, config: JinaBertConfig) -> None:
        super().__init__(config)
        width = config.hidden_size
        self.embeddings = _Module(
            word_embeddings=nn.Embedding(config.vocab_size, width),
            token_type_embeddings=nn.Embedding(config.type_vocab_size, width),
            LayerNorm=nn.LayerNorm(width, config.layer_norm_eps),
        )
        layers = nn.ModuleList([_layer(config) for _ in range(config.num_hidden_layers)])
        self.encoder = _Module(layer=layers)
        self.post_init()

    def forward(self, input_ids: torch.Tensor, token_type_ids: torch.Tensor) -> SimpleNamespace:
        """Tokens and their types (1, T) -> `last_hidden_state` (1, T, E)."""
        parts: Any = self.embeddings
        h = parts.word_embeddings(input_ids[0]) + parts.token_type_embeddings(token_type_ids[0])
        h = parts.LayerNorm(h)
        for layer in self.encoder.layer:
            h = _call(self.config, layer, h)
        return SimpleNamespace(last_hidden_state=h[None])


def _call(config: JinaBertConfig, layer: Any, h: torch.Tensor) -> torch.Tensor:
    attention = layer.attention
    mixed = attention.output.dense(_attend(config, h, attention.self))
    inner = attention.output.LayerNorm(h + mixed)
    if config.is_for_code:
        inner = layer.layer_norm_1(h + inner)
        up, gate = layer.mlp.up_gated_layer(inner).chunk(2, -1)
        return layer.layer_norm_2(inner + layer.mlp.down_layer(nn.functional.gelu(gate) * up))
    gate, up = layer.mlp.gated_layers(inner).chunk(2, -1)
    return layer.mlp.layernorm(inner + layer.mlp.wo(nn.functional.gelu(gate) * up))
