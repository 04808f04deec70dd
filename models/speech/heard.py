"""What a layer of a decoder keeps of the sound: keys and values of the encoder's states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops

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
