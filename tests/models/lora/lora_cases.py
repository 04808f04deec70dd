"""Tiny models with adapters, and the training that PEFT has done with them.

tests/golden/record_lora_peft.py runs it in transformers and PEFT, and test_training.py here.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.decoder.config.decoder_config import DecoderConfig
from hearthd.models.decoder.next_token_loss import loss_graph
from hearthd.models.dsl.optimizers import Adam, WarmupCosine
from hearthd.models.families.gemma3 import Config as Gemma3Config
from hearthd.models.lora.training import Lora, adapted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hearthd.models.dsl.graph import Graph, Tensor

    Array = NDArray[Any]

GOLDEN = Path(__file__).parents[2] / "golden" / "lora_peft.npz"
TOKENS, STEPS = 12, 50
SCHEDULE = WarmupCosine(peak=0.005, warmup=5, total=STEPS)
OPTIMIZER = Adam(rate=SCHEDULE, beta2=0.99, decay=0.1, max_norm=1.0)


def normal(name: str, shape: tuple[int, ...], scale: float) -> Array:
    """Random numbers that depend on a tensor's name, f32."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    return (scale * rng.normal(size=shape)).astype(np.float32)


@dataclass(frozen=True, kw_only=True)
class LoraCase:
    """A model, its adapters, and random numbers for both."""

    architecture: str
    config: DecoderConfig
    lora: Lora

    @cached_property
    def parameters(self) -> dict[str, Tensor]:
        return self._traced[0]

    @cached_property
    def graph(self) -> Graph:
        """The loss, with adapters."""
        return self._traced[1]

    @cached_property
    def adapters(self) -> dict[str, Tensor]:
        return self._traced[2]

    @cached_property
    def _traced(self) -> tuple[dict[str, Tensor], Graph, dict[str, Tensor]]:
        model = ARCHITECTURES[self.architecture].model(self.config)
        parameters = model.parameters()
        return parameters, *adapted(loss_graph(model, TOKENS), parameters, self.lora)

    def weights(self) -> dict[str, Array]:
        """Norms near 1, and matrices with rows of a length near 1."""
        return {
            name: normal(name, tensor.shape, tensor.shape[-1] ** -0.5)
            if tensor.type.rank == 2
            else 1 + normal(name, tensor.shape, 0.1)
            for name, tensor in self.parameters.items()
        }

    def initial(self) -> dict[str, Array]:
        """The adapters before the first step. B is not 0, so that no gradient is."""
        return {name: normal(name, tensor.shape, 0.2) for name, tensor in self.adapters.items()}

    def batch(self, step: int) -> tuple[Array, Array]:
        """Tokens and targets of a step, i32 (TOKENS,) both."""
        rng = np.random.default_rng([3, step])
        ids = rng.integers(self.config.vocab_size, size=TOKENS + 1).astype(np.int32)
        return ids[:-1], ids[1:]


CASES = {
    "gemma3": LoraCase(
        architecture="gemma3",
        config=Gemma3Config(
            layers=2, hidden=32, ffn=40, heads=4, kv_heads=2, head_dim=8, windows=(4, None),
            max_context=64, vocab_size=61, query_scale=6**-0.5, rope_base=1000.0,
            local_rope_base=100.0,
        ),
        lora=Lora(rank=4, alpha=6.0),
    ),
    "llama": LoraCase(
        architecture="llama",
        config=DecoderConfig(
            layers=2, hidden=36, ffn=40, heads=6, kv_heads=2, head_dim=8, max_context=64,
            vocab_size=61, norm_eps=1e-3, rope_base=1000.0, tied=False,
        ),
        lora=Lora(rank=3, alpha=3.0, projections=("q_proj", "v_proj", "down_proj")),
    ),
}  # fmt: skip
