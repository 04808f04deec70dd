"""Gemma 3n (text): each layer changes one of several streams, and corrects the others by it.

Source: the model `gemma3n` of transformers (2025); "Alternating Updates for Efficient Transformers"
(Baykal et al., 2023) and "LAuReL: Learned Augmented Residual Layer" (Menghani et al., 2024).

In shape comments `S` is streams, and `P` the width of the embedding of a token for a layer.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.models.decoder.altup_layers import AltUp, as_large
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.gemma3n_config import Gemma3nConfig, from_gguf, from_hugging_face
from hearthd.models.decoder.layers import MLP
from hearthd.models.decoder.tensor_names import GroupedRows
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn, ops
from hearthd.models.families import gemma4
from hearthd.models.families.gemma3 import GemmaBlock
from hearthd.models.families.gemma4 import LayerEmbeddings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthd.models.decoder.kv_cache import LayerCache
    from hearthd.models.decoder.layers import RopeTable
    from hearthd.models.dsl.graph import Tensor


def largest_of_normal(gate: Tensor, deviations: float) -> Tensor:
    """What exceeds the mean of a row of (N, F) by more than `deviations` standard deviations."""
    gate = ops.barrier(gate)  # a sequence's sums must not depend on the batch size
    centered = gate - f.along_axes(f.mean(gate, 1), gate, (1,))
    deviation = ops.sqrt(f.mean(centered * centered, 1)) * deviations
    return f.relu(centered - f.along_axes(deviation, centered, (1,)))


def sparse_gelu(gate: Tensor, deviations: float | None) -> Tensor:
    """GELU of the largest inputs (N, F) alone; of all of them without `deviations`."""
    return f.gelu_tanh(gate if deviations is None else largest_of_normal(gate, deviations))


class Laurel(nn.Module):
    """Adds a product of low rank, normalized, to hidden states."""

    def __init__(self, config: Gemma3nConfig) -> None:
        self.linear_left = nn.Linear(config.hidden, config.laurel_rank)
        self.linear_right = nn.Linear(config.laurel_rank, config.hidden)
        self.post_laurel_norm = nn.RMSNorm(config.hidden, config.norm_eps)

    def __call__(self, x: Tensor) -> Tensor:
        """(N, E) -> (N, E)."""
        return x + self.post_laurel_norm(self.linear_right(self.linear_left(x)))


class Gemma3nBlock(GemmaBlock):
    """Attention and a layer of low rank, then an MLP, between a prediction and its correction."""

    def __init__(self, config: Gemma3nConfig, index: int) -> None:
        activation = functools.partial(sparse_gelu, deviations=config.deviations[index])
        mlp = MLP(config.layer(index), activation)
        super().__init__(config, gemma4.attention(config, index), mlp)
        self.altup, self.laurel = AltUp(config), Laurel(config)
        width = config.layer_embedding
        self.per_layer_input_gate = nn.Linear(config.hidden, width)
        self.per_layer_projection = nn.Linear(width, config.hidden)
        self.post_per_layer_input_norm = nn.RMSNorm(config.hidden, config.norm_eps)

    def streams(
        self,
        streams: Sequence[Tensor],
        embedding: Tensor,
        rope: RopeTable | None,
        cache: LayerCache,
    ) -> list[Tensor]:
        """Streams, each (N, E), and embeddings for this layer (N, P) -> the streams after it."""
        predicted = self.altup.predicted(streams)
        x = self.input_layernorm(predicted[0])
        h = predicted[0] + self.post_attention_layernorm(self.self_attn(x, rope, cache))
        h = (h + self.laurel(x)) * math.sqrt(0.5)
        x = self.mlp(self.pre_feedforward_layernorm(h))
        corrected = self.altup.corrected(predicted, h + self.post_feedforward_layernorm(x))
        x = self.per_layer_input_gate(self.altup.correct_output_scale(corrected[0]))
        x = self.per_layer_projection(f.gelu_tanh(x) * embedding)
        x = self.post_per_layer_input_norm(x)
        return [corrected[0], *(stream + x for stream in corrected[1:])]


class Gemma3n(LayerEmbeddings):
    """Streams that are projections of the embeddings, and whose mean the head reads."""

    config: Gemma3nConfig
    layers: Sequence[Gemma3nBlock]

    def __init__(self, config: Gemma3nConfig) -> None:
        blocks = [Gemma3nBlock(config, index) for index in range(config.layers)]
        width, rows = config.layer_embedding, config.layer_vocab
        super().__init__(config, blocks, width=width, rows=rows)
        hidden, others = config.hidden, range(config.streams - 1)
        self.altup_projections = [nn.Linear(hidden, hidden) for _ in others]
        self.altup_unembed_projections = [nn.Linear(hidden, hidden) for _ in others]

    @override
    def layer_embeddings(self, tokens: Tensor, h: Tensor) -> list[Tensor]:
        rows = ops.full_like(tokens, self.config.layer_vocab)
        has_row = ops.compare(tokens, rows, direction="LT")
        return super().layer_embeddings(ops.select(has_row, tokens, ops.full_like(tokens, 0)), h)

    @override
    def __call__(
        self, tokens: Tensor, positions: Tensor, caches: list[LayerCache], h: Tensor | None = None
    ) -> Tensor:
        h = self.embed(tokens) if h is None else h
        embeddings, ropes = self.layer_embeddings(tokens, h), self.rope_tables(positions)
        streams = [h, *(as_large(project(h), h) for project in self.altup_projections)]
        for i, block in enumerate(self.layers):
            streams = block.streams(streams, embeddings[i], ropes[i], caches[self.config.source(i)])
        first, *others = streams
        for project, stream in zip(self.altup_unembed_projections, others, strict=True):
            first = first + as_large(project(stream), streams[0])
        return self.norm(first * (1.0 / self.config.streams))


_ALTUP = {
    "correction_coefs": "altup_correct_coef",
    "correct_output_scale": "altup_correct_scale",
    "modality_router": "altup_router",
    "prediction_coefs": "altup_predict_coef",
    "router_norm": "altup_router_norm",
}
_LAUREL = {
    "linear_left": "laurel_l",
    "linear_right": "laurel_r",
    "post_laurel_norm": "laurel_post_norm",
}
_OF_GEMMA4 = gemma4.ARCHITECTURE.tensors


def _stacked(folder: str, gguf: str) -> GroupedRows:
    """The matrices of a GGUF file that project all streams but the first one."""
    return GroupedRows(
        folder=folder,
        gguf=gguf,
        parts=tuple(f"{folder}.{i}" for i in range(3)),
        shape=lambda config: (1, (config.hidden,) * 3),
    )


ARCHITECTURE = Architecture(
    name="gemma3n",
    config=Gemma3nConfig,
    model_types=("gemma3n_text", "gemma3n"),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Gemma3n,
    tensors=replace(
        _OF_GEMMA4,
        gguf={
            **_OF_GEMMA4.gguf,
            **{f"altup.{ours}": theirs for ours, theirs in _ALTUP.items()},
            **{f"laurel.{ours}": theirs for ours, theirs in _LAUREL.items()},
        },
        folder={"altup.correct_output_scale.weight": "altup.correct_output_scale"},
        grouped=(
            _stacked("altup_projections", "altup_proj"),
            _stacked("altup_unembed_projections", "altup_unembd_proj"),
        ),
    ),
)
