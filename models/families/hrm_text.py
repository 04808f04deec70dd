"""HRM-Text: two stacks of layers in turn, a fast one several times and a slow one after it.

Source: the model `hrm_text` of transformers (2026), and "Hierarchical Reasoning Model" (2025).
Tokens of a prompt see only those before them, as in llama.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.models.config import ConfigError
from hearthd.models.decoder.architecture import Architecture
from hearthd.models.decoder.config.decoder_config import (
    DecoderConfig,
    from_config_json,
    from_gguf_metadata,
)
from hearthd.models.decoder.layers import MLP, Block, DecoderModel, HeadLinear, normalized
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn
from hearthd.models.dsl.types import DType
from hearthd.models.families.lfm3 import HeadGatedAttention

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearthd.models.config import ModelConfig
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.kv_cache import LayerCache
    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.program import StoredTensor

_USUAL_SCALE = 50.0  # one over the usual `initializer_range`


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig):
    """The shape of a model; each layer of a file counts in `layers` as often as it is computed.

    stack_layers     the layers of each of the two stacks
    slow_cycles      how often the slow stack is computed
    fast_cycles      how often the fast one is before each of these
    embedding_scale  multiplies embeddings
    """

    stack_layers: int
    slow_cycles: int
    fast_cycles: int
    embedding_scale: float

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        computed = self.stack_layers * self.slow_cycles * (self.fast_cycles + 1)
        if self.layers != computed:
            raise ConfigError(
                f"layers: got {self.layers}, expected {computed}: {self.stack_layers} of a stack, "
                f"{self.fast_cycles} + 1 times in each of {self.slow_cycles} cycles"
            )


class GatedAttention(HeadGatedAttention):
    """Attention whose results are each multiplied by a number from 0 to 1."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__(config)
        self.gate_proj = HeadLinear(config.hidden, config.heads, config.head_dim)

    @override
    def gate(self, x: Tensor, heads: Tensor) -> Tensor:
        return self.gate_proj(x)


class FirstState(nn.Module):
    """What the fast stack gives before it is computed, (E,), for every token."""

    def __init__(self, hidden: int) -> None:
        self.weight = nn.parameter(hidden, dtype=DType.F32)

    def __call__(self, h: Tensor) -> Tensor:
        """For hidden states (N, E): (N, E)."""
        return f.trailing(self.weight, h.shape)


class HrmText(DecoderModel):
    """The layers of the fast stack and of the slow one, with norms that have no weights."""

    config: Config

    def __init__(self, config: Config) -> None:
        blocks = [
            Block(config, GatedAttention(config), MLP(config), _norm)
            for _ in range(2 * config.stack_layers)
        ]
        super().__init__(config, blocks)
        self.norm = _norm(config.hidden, config.norm_eps)
        self.first_fast = FirstState(config.hidden)

    @override
    def embed(self, tokens: Tensor) -> Tensor:
        """Tokens i32 (N,) -> hidden states (N, E)."""
        return super().embed(tokens) * self.config.embedding_scale

    @override
    def __call__(
        self, tokens: Tensor, positions: Tensor, caches: list[LayerCache], h: Tensor | None = None
    ) -> Tensor:
        """See `DecoderModel`."""
        slow = self.embed(tokens) if h is None else h
        fast = self.first_fast(slow)
        rope, count = self.rope_tables(positions)[0], self.config.stack_layers
        for start in range(0, self.config.layers, count):
            is_slow = start // count % (self.config.fast_cycles + 1) == self.config.fast_cycles
            x = slow + fast
            for layer in range(count):
                block = self.layers[layer + count * is_slow]
                x = block(x, rope, caches[start + layer])
            slow, fast = (self.norm(x), fast) if is_slow else (slow, self.norm(x))
        return slow


def _norm(_: int, eps: float) -> Callable[[Tensor], Tensor]:
    return partial(normalized, eps=eps)


class StackNames(TensorNames):
    """Names of a file whose folders have the fast stack and the slow one apart."""

    @override
    def find(
        self, config: ModelConfig, parameter: str, names: tuple[str, ...], *, gguf: bool
    ) -> StoredTensor:
        assert isinstance(config, Config)
        if gguf or not parameter.startswith("layers."):
            return super().find(config, parameter, names, gguf=gguf)
        _, number, inner = parameter.split(".", 2)
        stack, layer = divmod(int(number), config.stack_layers)
        named = TensorNames(layers=f"{'LH'[stack]}_module.layers", folder=_FOLDER, joined=_JOINED)
        return named.find(config, f"layers.{layer}.{inner}", names, gguf=False)


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json."""
    data.ignore("L_bp_cycles", "prefix_lm")
    data.fixed(attention_bias=False, mlp_bias=False)
    range_ = data.number("initializer_range", default=1 / _USUAL_SCALE)
    fields = from_config_json(data)
    stack = data.size("num_layers_per_stack", default=fields["layers"])
    slow, fast = data.size("H_cycles", default=2), data.size("L_cycles", default=3)
    return Config(
        **fields | {"layers": stack * slow * (fast + 1)},
        stack_layers=stack,
        slow_cycles=slow,
        fast_cycles=fast,
        embedding_scale=data.number("embedding_scale", default=1 / range_),
    )


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata, which count layers as they are computed."""
    data.ignore("hrm.prefix_lm")
    return Config(
        **from_gguf_metadata(data),
        stack_layers=data.size("hrm.layers_per_stack"),
        slow_cycles=data.size("hrm.h_cycles"),
        fast_cycles=data.size("hrm.l_cycles"),
        embedding_scale=data.number("embedding_scale"),
    )


_FOLDER = {"self_attn.o_proj": "attn.o_proj"}
_JOINED = {
    "attn.gqkv_proj": tuple(f"self_attn.{part}_proj" for part in ("gate", "q", "k", "v")),
    "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
}
_NAMES = StackNames(folder={"first_fast.weight": "z_L_init"})
ARCHITECTURE = Architecture(
    name="hrm_text",
    config=Config,
    model_types=("hrm_text",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=HrmText,
    tensors=replace(_NAMES, gguf={**_NAMES.gguf, "first_fast.weight": "hrm.z_l_init"}),
)
