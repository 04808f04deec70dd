"""The keys and values of the encoder's states, which a decoder layer attends to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from hearthd.models.dsl.graph import Tensor


@dataclass(frozen=True, kw_only=True)
class Heard:
    """Keys and values of one layer, each f16 or f32 (S, H * D), of S states and H heads."""

    key: Tensor
    value: Tensor

    def attend(self, query: Tensor, *, scale: float) -> Tensor:
        """Attention of tokens (N, H, D) to every state, (N, H * D)."""
        mixed = f.full_attention(query, self.key, self.value, scale=scale)
        return ops.reshape(mixed, shape=(query.shape[0], self.key.shape[1]))


@dataclass(frozen=True, kw_only=True)
class AlignedHeard(Heard):
    """Also keeps the scores of some heads, by index: each f32 (N, S), before the softmax."""

    heads: tuple[int, ...]
    scores: list[Tensor] = field(default_factory=list)

    @override
    def attend(self, query: Tensor, *, scale: float) -> Tensor:
        width = query.shape[2]
        for head in self.heads:
            asked = ops.reshape(f.narrow(query, 1, head, head + 1), shape=(query.shape[0], width))
            key = f.narrow(self.key, 1, head * width, (head + 1) * width)
            self.scores.append(f.matmul_transposed(asked * scale, _f32(key), dtype=DType.F32))
        return super().attend(query, scale=scale)


def _f32(x: Tensor) -> Tensor:
    return x if x.dtype is DType.F32 else ops.convert(x, dtype=DType.F32)
