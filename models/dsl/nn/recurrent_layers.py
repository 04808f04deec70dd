"""Layers that read a sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.nn.module import Module, parameter

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.dsl.types import DType

__all__ = ["GRU"]


class GRU(Module):
    """Gated recurrent units as torch.nn.GRU has them: layers of them, in one or both directions.

    weight_ih_l0 (3H, D), weight_hh_l0 (3H, H), bias_ih_l0 and bias_hh_l0 (3H,), the same with
    _reverse for the other direction, and with l1, l2, ... for the layers above, which read the
    states of the one below (directions * H for D). `form` is one of f.GRU_FORMS, which compute the
    same.
    """

    def __init__(
        self,
        inputs: int,
        hidden: int,
        *,
        layers: int,
        bidirectional: bool,
        bias: bool,
        batch_first: bool,
        dtype: DType,
        form: str,
    ) -> None:
        self.hidden = hidden
        self.layers = layers
        self.bias = bias
        self.batch_first = batch_first
        self.form = form
        self.directions = ("", "_reverse") if bidirectional else ("",)
        for layer in range(layers):
            width = hidden * len(self.directions) if layer else inputs
            for direction in self.directions:
                of = f"l{layer}{direction}"
                setattr(self, f"weight_ih_{of}", parameter(3 * hidden, width, dtype=dtype))
                setattr(self, f"weight_hh_{of}", parameter(3 * hidden, hidden, dtype=dtype))
                if bias:
                    setattr(self, f"bias_ih_{of}", parameter(3 * hidden, dtype=dtype))
                    setattr(self, f"bias_hh_{of}", parameter(3 * hidden, dtype=dtype))

    def __call__(self, x: Tensor, h0: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """x (S, B, D) and h0 (layers * directions, B, H), or zeros -> (y, h_n).

        y (S, B, directions * H) has the states of the last layer, h_n the last state of each layer
        and direction, in the order of h0: l0, l0 reversed, l1, ... With batch_first x is (B, S, D),
        and y likewise.
        """
        if self.batch_first:
            x = ops.transpose(x, order=(1, 0, 2))
        if h0 is None:
            shape = (self.layers * len(self.directions), x.shape[1], self.hidden)
            h0 = ops.full(shape=shape, dtype=x.dtype, value=0.0)
        last: list[Tensor] = []
        for layer in range(self.layers):
            outputs = []
            for direction in self.directions:
                begin = f.at(h0, len(last))
                weights = self._weights(f"l{layer}{direction}")
                states = f.gru(x, begin, weights, reverse=bool(direction), form=self.form)
                outputs.append(states)
                last.append(f.at(states, 0 if direction else x.shape[0] - 1))
            x = ops.concatenate(*outputs, axis=2) if len(outputs) > 1 else outputs[0]
        y = ops.transpose(x, order=(1, 0, 2)) if self.batch_first else x
        return y, f.stack(last)

    def step(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """One step of one direction: x (B, D) and h (layers, B, H) -> y (B, H) and the next h."""
        states = []
        for layer in range(self.layers):
            x = f.gru_cell(x, f.at(h, layer), *self._weights(f"l{layer}"))
            states.append(x)
        return x, f.stack(states)

    def _weights(self, of: str) -> tuple[Tensor, ...]:
        prefixes = ("weight_ih", "weight_hh", *(("bias_ih", "bias_hh") if self.bias else ()))
        return tuple(getattr(self, f"{prefix}_{of}") for prefix in prefixes)
