"""RWKV-7 in PyTorch, token by token, by the equations of its paper and the source of llama.cpp."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import nn
from torch.nn.functional import normalize, relu
from typing_extensions import override

from tests.models.families.torch_decoder import Decoder, Module, linear

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.models.families.torch_decoder import Config

_MIXED = "rwkvag"


class Norm(Module):
    """LayerNorm, of each of some groups of columns."""

    def __init__(self, width: int, eps: float, groups: int = 1) -> None:
        super().__init__()
        self.weight, self.bias = (nn.Parameter(torch.empty(width)) for _ in range(2))
        self.eps, self.groups = eps, groups

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Rows (T, width), normalized."""
        parts = x.unflatten(-1, (self.groups, -1))
        parts = parts - parts.mean(-1, keepdim=True)
        parts = parts * torch.rsqrt(parts.pow(2).mean(-1, keepdim=True) + self.eps)
        return parts.flatten(-2) * self.weight + self.bias


class LowRank(Module):
    """Two matrices with few columns between them."""

    def __init__(
        self,
        shape: tuple[int, int, int],
        activation: Callable[[torch.Tensor], torch.Tensor] | None = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        hidden, rank, inner = shape
        layers = [linear(hidden, rank), nn.Identity(), linear(rank, inner, bias=bias)]
        self.lora, self.activation = nn.ModuleList(layers), activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(T, E) -> (T, H K)."""
        y = self.lora[0](x)
        result: torch.Tensor = self.lora[2](y if self.activation is None else self.activation(y))
        return result


def change_to_earlier(x: torch.Tensor) -> torch.Tensor:
    """The row before each row of x (T, E), 0 before the first one, minus x."""
    return torch.cat([torch.zeros_like(x[:1]), x[:-1]]) - x


class TimeMixer(Module):
    """The memory."""

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        hidden, self.width = config["hidden_size"], config["head_dim"]
        heads = hidden // self.width
        for letter in _MIXED:
            setattr(self, f"x_{letter}", nn.Parameter(torch.empty(1, 1, hidden)))
        self.k_k, self.k_a = (nn.Parameter(torch.empty(hidden)) for _ in range(2))
        self.r_k = nn.Parameter(torch.empty(heads, self.width))
        self.r_proj, self.k_proj, self.v_proj, self.o_proj = (
            linear(hidden, hidden) for _ in range(4)
        )
        self.w_lora = LowRank((hidden, config["decay_low_rank_dim"], hidden), torch.tanh)
        self.a_lora = LowRank((hidden, config["a_low_rank_dim"], hidden))
        if layer:
            self.v_lora = LowRank((hidden, config["v_low_rank_dim"], hidden))
        self.g_lora = LowRank(
            (hidden, config["gate_low_rank_dim"], hidden), torch.sigmoid, bias=False
        )
        self.g_norm = Norm(hidden, self.width * config["norm_eps"], heads)

    def forward(
        self, x: torch.Tensor, first: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(T, E) -> (T, E), and the values of the first layer, which is `first`."""
        change = change_to_earlier(x)
        mixed = {letter: x + change * getattr(self, f"x_{letter}")[0] for letter in _MIXED}
        query, key = self.r_proj(mixed["r"]), self.k_proj(mixed["k"])
        value = self.v_proj(mixed["v"])
        if first is None:
            first = value
        else:
            value = torch.lerp(value, first, self.v_lora(mixed["v"]).sigmoid())
        decay = torch.exp(-torch.exp(torch.tensor(-0.5)) * self.w_lora(mixed["w"]).sigmoid())
        rate = self.a_lora(mixed["a"]).sigmoid()
        probe = normalize((key * self.k_k).unflatten(-1, (-1, self.width)), dim=-1, eps=1e-12)
        key = key * (1 + (rate - 1) * self.k_a)
        query, key, value, decay, rate = (
            part.unflatten(-1, (-1, self.width)) for part in (query, key, value, decay, rate)
        )
        y = self.g_norm(read(query, decay, key, value, probe, rate).flatten(-2))
        own = (query * key * self.r_k).sum(-1, keepdim=True) * value
        result: torch.Tensor = self.o_proj((y + own.flatten(-2)) * self.g_lora(mixed["g"]))
        return result, first


def read(
    query: torch.Tensor,
    decay: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    probe: torch.Tensor,
    rate: torch.Tensor,
) -> torch.Tensor:
    """What heads (T, H, K) read in their memory after each token: (T, H, K)."""
    state = torch.zeros(key.shape[1], key.shape[2], key.shape[2])
    outputs = []
    for q, w, k, v, kk, a in zip(query, decay, key, value, probe, rate, strict=True):
        found = torch.einsum("hvk,hk->hv", state, -kk)
        added = torch.einsum("hv,hk->hvk", found, kk * a) + torch.einsum("hv,hk->hvk", v, k)
        state = state * w[:, None] + added
        outputs.append(torch.einsum("hvk,hk->hv", state, q))
    return torch.stack(outputs)


class ChannelMixer(Module):
    """The MLP."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        hidden, width = config["hidden_size"], config["intermediate_size"]
        self.x_k = nn.Parameter(torch.empty(hidden))
        self.key, self.value = linear(hidden, width), linear(width, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(T, E) -> (T, E)."""
        mixed = x + change_to_earlier(x) * self.x_k
        result: torch.Tensor = self.value(relu(self.key(mixed)).pow(2))
        return result


class Block(Module):
    """One layer; the first one also normalizes the embeddings."""

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        hidden, eps = config["hidden_size"], config["norm_eps"]
        self.pre_norm = None if layer else Norm(hidden, eps)
        self.attn_norm, self.ffn_norm = Norm(hidden, eps), Norm(hidden, eps)
        self.attn, self.ffn = TimeMixer(config, layer), ChannelMixer(config)

    def forward(
        self, h: torch.Tensor, first: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(T, E) -> (T, E), and the values of the first layer, which is `first`."""
        h = h if self.pre_norm is None else self.pre_norm(h)
        mixed, first = self.attn(self.attn_norm(h), first)
        h = h + mixed
        return h + self.ffn(self.ffn_norm(h)), first


class Rwkv7(Decoder):
    """A model."""

    name = "RWKV7"
    renamed: ClassVar[Mapping[str, str]] = {"embed_tokens": "embeddings"}

    def __init__(self, config: Config) -> None:
        Module.__init__(self)
        self.config = config
        hidden, vocabulary = config["hidden_size"], config["vocab_size"]
        self.model = Module()
        self.model.embed_tokens = nn.Embedding(vocabulary, hidden)
        self.model.layers = nn.ModuleList(
            Block(config, layer) for layer in range(config["num_hidden_layers"])
        )
        self.model.norm = Norm(hidden, config["norm_eps"])
        if not config.get("tie_word_embeddings"):
            self.lm_head = linear(hidden, vocabulary)

    @override
    def states(self, tokens: torch.Tensor) -> torch.Tensor:
        """Tokens (T,) -> normalized states (T, E)."""
        h, first = self.model.embed_tokens(tokens), None
        for layer in self.model.layers:
            h, first = layer(h, first)
        result: torch.Tensor = self.model.norm(h)
        return result
