"""An assistant: a small model that drafts from the keys and values of the model that it helps.

For the latest token x_p, which the model has not read, and the model's normalized hidden state h of
the token before it,

    y = assistant(proj [embed(x_p) ; h]),    h' = post(y)

where `embed` is the model's, and each layer of the assistant has queries only: it attends to
the keys and values of the model's last layer of its kind, with or without a window. The head of the
assistant gives the logits of x_{p+1} from y, and h' takes the place of h in the draft of the token
after that. Every draft has the rotary position p: the drafted tokens have no keys
(`Gemma4AssistantForCausalLM` of transformers).

`E` is the hidden width of the model, `V` the tokens of both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from typing_extensions import override

from hearthd.models.cache_buffers import cache_types
from hearthd.models.decoder.drafting.drafter import StatelessDrafter
from hearthd.models.decoder.kv_cache import LayerCache
from hearthd.models.decoder.slot_caches import layer_caches
from hearthd.models.decoder.tensor_names import DRAFTER_MODULE
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from hearthd.bundle import EntryPoint
    from hearthd.models.decoder.entry_points import Decoder
    from hearthd.models.dsl.graph import Graph, Tensor
    from hearthd.models.program import ProgramOptions


@runtime_checkable
class Assistant(Protocol):
    """A model without keys and values of its own."""

    def parameters(self) -> dict[str, Tensor]:
        """See Decoder."""

    def assist(
        self, inputs: Tensor, position: Tensor, local: LayerCache, everywhere: LayerCache
    ) -> tuple[Tensor, Tensor]:
        """What one draft computes: logits (1, V) and the state (1, E) of the next one.

        inputs      the embedding of a token and the state before it (1, 2 * E)
        position    of the token, i32 (1,)
        local       keys and values of the model's last layer with a window
        everywhere  keys and values of its last layer without a window
        """


class AssistantDrafter(StatelessDrafter):
    """Drafts with an assistant of a model whose layers are of two kinds."""

    def __init__(
        self, model: Decoder, assistant: Assistant, options: ProgramOptions, block: int
    ) -> None:
        self._model, self._assistant = model, assistant
        windows = [model.window(layer) for layer in range(model.config.cached_layers)]
        # The last layer with a window, and the last one without.
        self._layers = tuple(
            max(i for i, window in enumerate(windows) if (window is None) == everywhere)
            for everywhere in (False, True)
        )
        self._specs = [layer_caches(model, layer, options, block) for layer in self._layers]

    @override
    def named_parameters(self) -> dict[str, Tensor]:
        return {f"{DRAFTER_MODULE}.{name}": x for name, x in self._assistant.parameters().items()}

    @property
    @override
    def layers_read(self) -> tuple[int, ...]:
        return self._layers

    @override
    def graph(self, point: EntryPoint) -> Graph:
        """(token i32 (1,), state (1, E), position i32 (1,), keys and values of layers)
        -> (logits (1, V), state (1, E)).
        """
        # In the order of the model's layers, as callers give them.
        order = sorted(range(len(self._layers)), key=lambda i: self._layers[i])

        def draft(
            token: Tensor, state: Tensor, position: Tensor, *buffers: Tensor
        ) -> tuple[Tensor, ...]:
            remaining = iter(buffers)
            caches = {
                i: LayerCache(
                    buffers=[tuple(next(remaining) for _ in self._specs[i])],
                    starts=[position + -1],  # the token's own position has no key yet
                    keys=point.keys,
                    window=self._model.window(self._layers[i]),
                )
                for i in order
            }
            inputs = ops.concatenate(self._model.embed(token), state, axis=1)
            logits, state = self._assistant.assist(inputs, position, caches[0], caches[1])
            return f.draft_logits(logits), state

        inputs = {
            "token": TensorType((1,), DType.I32),
            "state": TensorType((1, self._model.config.hidden), DType.F32),
            "position": TensorType((1,), DType.I32),
        }
        for i in order:
            inputs |= cache_types(self._specs[i])
        parameters = self._model.parameters() | self.named_parameters()
        return trace(point.name, draft, inputs, parameters=parameters)
