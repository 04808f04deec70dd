"""DeciLM and Nemotron-NAS in PyTorch, by their modeling_decilm.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from tests.models.families.torch_decoder import (
    MLP,
    Attention,
    Block,
    Decoder,
    Module,
    Norm,
    linear,
)

if TYPE_CHECKING:
    import torch

    from tests.models.families.torch_decoder import Config


class DeciAttention(Attention):
    """Attention with a layer's own number of key/value heads."""

    def __init__(self, config: Config, layer: int) -> None:
        heads = config["num_attention_heads"]
        if "block_configs" in config:
            groups = heads // config["block_configs"][layer]["attention"]["n_heads_in_group"]
        else:
            groups = config["num_key_value_heads_per_layer"][layer]
        width = config["hidden_size"] // heads
        super().__init__({**config, "num_key_value_heads": groups, "head_dim": width}, layer)


class LinearMixer(Module):
    """A matrix."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.linear_attn = linear(hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(T, E) -> (T, E)."""
        result: torch.Tensor = self.linear_attn(x)
        return result


class DeciBlock(Block):
    """One layer, which may have no attention or no MLP."""

    attention = DeciAttention

    def __init__(self, config: Config, layer: int) -> None:
        if "block_configs" not in config:
            super().__init__(config, layer)
            return
        Module.__init__(self)
        hidden, eps = config["hidden_size"], config["rms_norm_eps"]
        mixer, mlp = (config["block_configs"][layer][part] for part in ("attention", "ffn"))
        if not mixer["no_op"]:
            self.input_layernorm = Norm(hidden, eps)
            is_linear = mixer["replace_with_linear"]
            self.self_attn = LinearMixer(hidden) if is_linear else DeciAttention(config, layer)
        if not mlp["no_op"]:
            self.post_attention_layernorm = Norm(hidden, eps)
            width = int(2 * mlp["ffn_mult"] * hidden / 3)
            self.mlp = MLP(hidden, (width + 255) // 256 * 256)

    @override
    def forward(self, h: torch.Tensor) -> torch.Tensor:
        """(T, E) -> (T, E)."""
        if hasattr(self, "self_attn"):
            h = h + self.self_attn(self.input_layernorm(h))
        if hasattr(self, "mlp"):
            h = h + self.mlp(self.post_attention_layernorm(h))
        return h


class Deci(Decoder):
    """Llama whose layers differ."""

    block = DeciBlock
    name = "DeciLM"
