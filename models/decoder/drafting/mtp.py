"""The layer of a checkpoint that predicts further tokens: multi-token prediction (MTP).

For the token x_p at position p and the model's normalized hidden state h of the token before it,

    u = proj [token_norm(embed(x_p)) ; state_norm(h)]
    y = norm(block(u))

where `block` is a layer of the model, with attention to the layer's keys and values of earlier
positions. The model's head gives the logits of x_{p+1} from y, and y takes the place of h in the
draft of the token after that (DeepSeek-V3, 2024; Qwen3-Next, 2025; `graph_mtp` of llama.cpp).

Only the first rows of the head are read for a draft, since vocabularies list tokens in the order in
which they were merged: frequent ones first. Others are never drafted (FR-Spec, Zhao et al., 2025,
drafts the most frequent tokens of a corpus).

Every read of the model also writes the layer's keys and values of the tokens that it reads, from
the model's hidden states, and keeps the latest states: a token needs the state before it.

`N` is sequences x tokens, `n` the new tokens of a sequence, `E` the hidden width, `D` the tokens
that can be drafted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from typing_extensions import override

from hearthd.models.cache_buffers import cache_types
from hearthd.models.decoder.config.decoder_config import DecoderConfig
from hearthd.models.decoder.drafting.drafter import ProgramDrafter
from hearthd.models.decoder.kv_cache import LayerCache, StateRows, cache_rows
from hearthd.models.decoder.slot_caches import row_caches, state_caches
from hearthd.models.decoder.tensor_names import MTP_MODULE
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn, ops
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthd.bundle import CacheSpec, EntryPoint
    from hearthd.models.decoder.kv_cache import Span
    from hearthd.models.decoder.layers import Layer, RopeTable
    from hearthd.models.dsl.graph import Graph, Tensor
    from hearthd.models.program import ProgramOptions


# A multiple of sixteen. With a vocabulary of Qwen (151,643 tokens), these are 98 % of the tokens of
# English texts and code, 95 % of German, French and Spanish texts, and 80 % of Chinese ones.
_MOST_TOKENS = 1 << 16
# A draft is the most likely token, and its probability needs no logits further below it, in nats.
_DRAFT_MARGIN = 7


def drafted_tokens(vocab_size: int) -> int:
    """How many tokens, from 0 on, of a vocabulary are drafted."""
    return min(vocab_size, _MOST_TOKENS)


@dataclass(frozen=True, kw_only=True)
class MtpConfig(DecoderConfig):
    """The shape of a decoder; `mtp` says whether a layer that predicts further tokens is used."""

    mtp: bool = False


class MtpLayer(nn.Module):
    """The weights of the layer, around the block of the model that it has."""

    def __init__(self, config: DecoderConfig, block: Layer) -> None:
        self.token_norm = nn.RMSNorm(config.hidden, config.norm_eps)
        self.state_norm = nn.RMSNorm(config.hidden, config.norm_eps)
        self.proj = nn.Linear(2 * config.hidden, config.hidden)
        self.layers = [block]
        self.norm = nn.RMSNorm(config.hidden, config.norm_eps)

    def __call__(
        self, embedded: Tensor, states: Tensor, rope: RopeTable | None, cache: LayerCache
    ) -> Tensor:
        """Embeddings of tokens, and hidden states before them, (N, E) -> states (N, E)."""
        x = ops.concatenate(self.token_norm(embedded), self.state_norm(states), axis=1)
        return self.norm(self.layers[0](self.proj(x), rope, cache))


@runtime_checkable
class MtpModel(Protocol):
    """A decoder that may have the layer."""

    mtp: MtpLayer | None

    @property
    def config(self) -> MtpConfig:
        """The model's shape."""

    def parameters(self) -> dict[str, Tensor]:
        """See Decoder."""

    def attention_rope(self, positions: Tensor) -> RopeTable | None:
        """The rotary table of layers with attention, for positions i32 (N,)."""

    def cache_width(self, layer: int) -> int:
        """See Decoder."""

    def cache_heads(self, layer: int) -> int:
        """See Decoder."""

    def embed(self, tokens: Tensor) -> Tensor:
        """See Decoder."""

    def logits(self, x: Tensor) -> Tensor:
        """See Decoder."""


class MtpDrafter(ProgramDrafter):
    """Drafts with the layer of a model."""

    def __init__(self, model: MtpModel, layer: MtpLayer, options: ProgramOptions) -> None:
        self._model, self._layer, self._tokens = model, layer, options.draft_tokens
        rows = cache_rows(None, context=options.context, chunk=options.chunk)
        width, heads = model.cache_width(0), model.cache_heads(0)
        self._rows = row_caches(MTP_MODULE, rows, width, heads, options, drafts=True)
        self._states = state_caches(MTP_MODULE, (StateRows(model.config.hidden),), options)

    @override
    def named_parameters(self) -> dict[str, Tensor]:
        return {f"{MTP_MODULE}.{name}": x for name, x in self._layer.parameters().items()}

    @property
    @override
    def caches(self) -> tuple[tuple[CacheSpec, ...], ...]:
        return self._states, self._rows

    @override
    def follow(
        self,
        tokens: Tensor,
        x: Tensor,
        embedded: Tensor,
        positions: Tensor,
        caches: Sequence[LayerCache],
    ) -> None:
        states, rows = caches
        before = states.recur([x], (), _states_before)
        # Only the keys and values remain of this call: no output of the graph needs the rest.
        self._layer(embedded, before, self._model.attention_rope(positions), rows)

    @override
    def graph(self, point: EntryPoint) -> Graph:
        """(token i32 (1,), state (1, E), position i32 (1,), keys and values)
        -> (logits (1, D), state (1, E), keys and values).
        """
        model = self._model

        def draft(
            token: Tensor, state: Tensor, position: Tensor, *buffers: Tensor
        ) -> tuple[Tensor, ...]:
            cache = LayerCache(buffers=[buffers], starts=[position], keys=point.keys, window=None)
            rope = model.attention_rope(position)
            state = self._layer(model.embed(token), state, rope, cache)
            margin = ops.full_like(token, _DRAFT_MARGIN)
            logits = model.logits(state)
            if self._tokens < model.config.vocab_size:
                logits = f.narrow(logits, 1, 0, self._tokens)
            return f.approximate_logits(logits, margin), state, *cache.buffers[0]

        inputs = {
            "token": TensorType((1,), DType.I32),
            "state": TensorType((1, model.config.hidden), DType.F32),
            "position": TensorType((1,), DType.I32),
        }
        inputs |= cache_types(self._rows)
        in_place = {2 + i: 3 + i for i in range(len(self._rows))}
        parameters = model.parameters()
        return trace(point.name, draft, inputs, parameters=parameters, in_place=in_place)


def _states_before(
    rows: Sequence[Tensor], buffers: tuple[Tensor, ...], span: Span
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The states (n, E) before n tokens of a sequence, and the ring with the latest ones."""
    (states,), (ring,) = rows, buffers
    known = ops.concatenate(span.before(ring), states, axis=0)
    latest = ops.gather(known, span.kept + 1, axis=0)
    return f.narrow(known, 0, 0, states.shape[0]), (span.written(ring, latest),)
