"""A draft model: a small language model of the same vocabulary, whose next tokens are drafts.

A prefill of the large model also has the small one read its tokens, so the rows of a prompt are in
the prefix cache with the rows of the large one. A decode or a verify does not: a step that drafts
nothing costs nothing more. A draft first reads the tokens that were accepted since the last one
(speculative decoding: Leviathan et al., 2023; here the draft is greedy, and a drafted token is
accepted if the sampler of the large model chooses it).

`N` is sequences x tokens, `T` the tokens of a call, `E` the hidden width of the small model, `D`
the tokens that can be drafted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.models.cache_buffers import cache_types
from hearthd.models.decoder.drafting.drafter import ProgramDrafter
from hearthd.models.decoder.kv_cache import LayerCache
from hearthd.models.decoder.slot_caches import layer_caches
from hearthd.models.decoder.tensor_names import DRAFTER_MODULE
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthd.bundle import CacheSpec, EntryPoint
    from hearthd.models.decoder.entry_points import Decoder
    from hearthd.models.dsl.graph import Graph, Tensor
    from hearthd.models.program import ProgramOptions


class DraftModel(ProgramDrafter):
    """Drafts with a small language model. Tokens that both models have can be drafted."""

    def __init__(self, model: Decoder, options: ProgramOptions, block: int) -> None:
        self._model, self._tokens = model, options.draft_tokens
        self._caches = tuple(
            tuple(
                replace(spec, name=f"{DRAFTER_MODULE}.{spec.name}", drafts=True, lazy=True)
                for spec in layer_caches(model, layer, options, block)
            )
            for layer in range(model.config.cached_layers)
        )

    @override
    def named_parameters(self) -> dict[str, Tensor]:
        return {f"{DRAFTER_MODULE}.{name}": x for name, x in self._model.parameters().items()}

    @property
    @override
    def caches(self) -> tuple[tuple[CacheSpec, ...], ...]:
        return self._caches

    @override
    def follow(
        self,
        tokens: Tensor,
        x: Tensor,
        embedded: Tensor,
        positions: Tensor,
        caches: Sequence[LayerCache],
    ) -> None:
        for layer, cache in enumerate(caches):
            cache.window = self._model.window(layer)
        in_caches = caches[0].positions(tokens.shape[0])
        # Only the keys and values remain of this call: no output of the graph needs the rest.
        self._model(tokens, in_caches, list(caches))

    @override
    def graph(self, point: EntryPoint) -> Graph:
        """(tokens i32 (T,), start i32 (1,), count i32 (1,), caches) -> (logits (1, D), caches).

        The logits are those after the first `count` tokens; the others are padding.
        """
        model, sizes = self._model, [len(layer) for layer in self._caches]

        def draft(
            tokens: Tensor, start: Tensor, count: Tensor, *buffers: Tensor
        ) -> tuple[Tensor, ...]:
            remaining = iter(buffers)
            caches = [
                LayerCache(
                    buffers=[tuple(next(remaining) for _ in range(size))],
                    starts=[start],
                    keys=point.keys,
                    window=model.window(layer),
                    count=count,
                )
                for layer, size in enumerate(sizes)
            ]
            x = model(tokens, f.consecutive(start, point.tokens), caches)
            last = ops.gather(x, count + -1, axis=0)
            logits = f.draft_logits(model.logits(last))
            updated = (buffer for cache in caches for buffer in cache.buffers[0])
            return f.narrow(logits, 1, 0, self._tokens), *updated

        specs = [spec for layer in self._caches for spec in layer]
        inputs = {
            "tokens": TensorType((point.tokens,), DType.I32),
            "start": TensorType((1,), DType.I32),
            "count": TensorType((1,), DType.I32),
        }
        first = len(inputs)
        inputs |= cache_types(specs)
        in_place = {1 + i: first + i for i in range(len(specs))}
        return trace(
            point.name, draft, inputs, parameters=self.named_parameters(), in_place=in_place
        )
