"""Models in PyTorch that transformers does not have: see torch_decoder.py."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from safetensors.numpy import save_file
from safetensors.torch import load_file
from torch import nn
from torch.nn.functional import gelu, relu
from typing_extensions import override

from tests.models.families.cases import random_tensors
from tests.models.families.deci_torch import Deci
from tests.models.families.rwkv7_torch import Rwkv7
from tests.models.families.torch_decoder import (
    MLP,
    Attention,
    Block,
    Decoder,
    Norm,
    linear,
    mixed_experts,
    rotated,
)
from tests.models.families.winter_torch import Maple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tests.models.families.torch_decoder import Config


class MaincoderAttention(Attention):
    """Turns neighbors, and then normalizes heads."""

    @override
    def make_projections(self, hidden: int) -> None:
        super().make_projections(hidden)
        self.q_norm, self.k_norm = (Norm(self.width, self.config["rms_norm_eps"]) for _ in "qk")

    @override
    def heads(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        query, key, value = super().heads(x)
        return self.q_norm(query), self.k_norm(key), value

    @override
    def turned(self, x: torch.Tensor) -> torch.Tensor:
        return rotated(x, self.config["rope_theta"], neighbors=True)


class MaincoderBlock(Block):
    """One layer."""

    attention = MaincoderAttention


class Maincoder(Decoder):
    """By llama.cpp: the converter leaves rows as they are, and neighbors turn."""

    block = MaincoderBlock


class Nanbeige(Decoder):
    """By llama.cpp: all layers are computed several times, with a norm after each time."""

    @override
    def states(self, tokens: torch.Tensor) -> torch.Tensor:
        h, loops = self.model.embed_tokens(tokens), self.config["num_loops"]
        for loop in range(loops):
            for layer in self.model.layers:
                h = layer(h)
            if loop == loops - 1 or not self.config.get("skip_loop_final_norm"):
                h = self.model.norm(h)
        return h


class JoinedAttention(Attention):
    """One matrix of queries, keys and values."""

    @override
    def make_projections(self, hidden: int) -> None:
        heads, groups = self.config["num_attention_heads"], self.config["num_key_value_heads"]
        self.counts = [heads, groups, groups]
        self.q_k_v_proj = linear(hidden, sum(self.counts) * self.width)
        self.o_proj = linear(heads * self.width, hidden)

    @override
    def heads(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        query, key, value = self.split(self.q_k_v_proj(x)).split(self.counts)
        return self.turned(query), self.turned(key), value


class SparkAttention(JoinedAttention):
    """A gate for each head, and two kinds of rotary positions."""

    @override
    def make_projections(self, hidden: int) -> None:
        super().make_projections(hidden)
        self.kind = self.config["layer_types"][self.layer]
        self.g_proj = linear(hidden, self.counts[0])

    @override
    def turned(self, x: torch.Tensor) -> torch.Tensor:
        rope = self.config["rope_parameters"][self.kind]
        return rotated(x, rope["rope_theta"], int(self.width * rope["partial_rotary_factor"]))

    @property
    @override
    def window(self) -> int | None:
        return self.config["sliding_window"] if self.kind == "sliding_attention" else None

    @override
    def output(self, x: torch.Tensor, mixed: torch.Tensor) -> torch.Tensor:
        gated = mixed * torch.sigmoid(self.g_proj(x))[..., None]
        result: torch.Tensor = self.o_proj(gated.flatten(1))
        return result


class SparkBlock(Block):
    """One layer."""

    attention = SparkAttention

    @override
    def make_mlp(self, config: Config, _: int) -> None:
        self.mlp = MLP(config["hidden_size"], config["intermediate_size"], gelu)


class Spark(Decoder):
    """By modeling_spark2_5.py of Spark-X2.5."""

    block = SparkBlock
    name = "Spark2_5"
    renamed: ClassVar[Mapping[str, str]] = {"self_attn.o_proj": "self_attn.out_proj"}


class SmallThinkerAttention(Attention):
    """Layers with a window or without, and with positions or without."""

    @override
    def turned(self, x: torch.Tensor) -> torch.Tensor:
        return super().turned(x) if self.config["rope_layout"][self.layer] else x

    @property
    @override
    def window(self) -> int | None:
        slides = self.config["sliding_window_layout"][self.layer]
        return self.config["sliding_window_size"] if slides else None


class SmallThinkerBlock(Block):
    """One layer, whose experts are chosen before attention."""

    attention = SmallThinkerAttention

    @override
    def make_mlp(self, config: Config, _: int) -> None:
        self.config, hidden = config, config["hidden_size"]
        self.block_sparse_moe = nn.Module()
        count, width = config["moe_num_primary_experts"], config["moe_ffn_hidden_size"]
        self.block_sparse_moe.primary_router = linear(hidden, count)
        experts = (MLP(hidden, width, relu, ("gate", "up", "down")) for _ in range(count))
        self.block_sparse_moe.experts = nn.ModuleList(experts)

    @override
    def forward(self, h: torch.Tensor) -> torch.Tensor:
        logits = self.block_sparse_moe.primary_router(h)
        logits, chosen = logits.topk(self.config["moe_num_active_primary_experts"], -1)
        factors = logits.softmax(-1)
        if not self.config["moe_primary_router_apply_softmax"]:
            factors = logits.sigmoid()
            factors = factors / factors.sum(-1, keepdim=True)
        h = h + self.self_attn(self.input_layernorm(h))
        x = self.post_attention_layernorm(h)
        return h + mixed_experts(x, [*self.block_sparse_moe.experts], factors, chosen)


class SmallThinker(Decoder):
    """By modeling_smallthinker.py of SmallThinker-4BA0.6B-Instruct."""

    block = SmallThinkerBlock


class PlmAttention(Attention):
    """Keys and values are projections of a latent vector, beside rotary columns of all heads."""

    @override
    def make_projections(self, hidden: int) -> None:
        config, heads = self.config, self.config["num_attention_heads"]
        self.plain, self.turning = config["qk_nope_head_dim"], config["qk_rope_head_dim"]
        self.latent, values = config["kv_lora_rank"], config["v_head_dim"]
        self.width = self.plain + self.turning
        self.q_proj = linear(hidden, heads * self.width)
        self.kv_a_proj_with_mqa = linear(hidden, self.latent + self.turning)
        self.kv_a_layernorm = Norm(self.latent, 1e-6)
        self.kv_b_proj = linear(self.latent, heads * (self.plain + values))
        self.o_proj = linear(heads * values, hidden)

    @override
    def heads(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        parts = [self.plain, self.turning]
        plain, turning = self.split(self.q_proj(x)).split(parts, -1)
        query = torch.cat([plain, self.turned(turning)], -1)
        latent, shared = self.kv_a_proj_with_mqa(x).split([self.latent, self.turning], -1)
        both = self.kv_b_proj(self.kv_a_layernorm(latent))
        both = both.unflatten(-1, (query.shape[0], -1)).transpose(0, 1)
        key, value = both[..., : self.plain], both[..., self.plain :]
        shared = self.turned(shared[None]).expand(query.shape[0], -1, -1)
        return query, torch.cat([key, shared], -1), value

    @override
    def turned(self, x: torch.Tensor) -> torch.Tensor:
        return rotated(x, self.config["rope_theta"], neighbors=True)


class SquaredMLP(nn.Module):  # type: ignore[misc]
    """An MLP with squared ReLU."""

    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.up_proj, self.down_proj = linear(hidden, width), linear(width, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(T, E) -> (T, E)."""
        result: torch.Tensor = self.down_proj(relu(self.up_proj(x)).square())
        return result


class PlmBlock(Block):
    """One layer."""

    attention = PlmAttention

    @override
    def make_mlp(self, config: Config, _: int) -> None:
        self.mlp = SquaredMLP(config["hidden_size"], config["intermediate_size"])


class Plm(Decoder):
    """By llama.cpp: DeepSeek-V2's attention, and an MLP without a gate."""

    block = PlmBlock
    name = "PLM"


class Mixture(nn.Module):  # type: ignore[misc]
    """Experts by a softmax of all, and a shared MLP."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config, hidden, width = config, config["hidden_size"], config["moe_intermediate_size"]
        names = [key for key in ("n_routed_experts", "num_experts") if key in config]
        shared = [key for key in ("n_shared_experts", "num_shared_experts") if key in config]
        self.gate = linear(hidden, config[names[0]])
        self.experts = nn.ModuleList(MLP(hidden, width) for _ in range(config[names[0]]))
        self.shared_experts = MLP(hidden, width * config[shared[0]])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(T, E) -> (T, E)."""
        scores = self.gate(x).softmax(-1)
        factors, chosen = scores.topk(self.config["num_experts_per_tok"], -1)
        if self.config["norm_topk_prob"]:
            factors = factors / factors.sum(-1, keepdim=True)
        return mixed_experts(x, [*self.experts], factors, chosen) + self.shared_experts(x)


class DeepseekBlock(Block):
    """One layer."""

    @override
    def make_mlp(self, config: Config, layer: int) -> None:
        if layer < config["first_k_dense_replace"]:
            super().make_mlp(config, layer)
        else:
            self.mlp = Mixture(config)


class Deepseek(Decoder):
    """By modeling_deepseek.py of deepseek-moe-16b-base."""

    block = DeepseekBlock


class LingBlock(DeepseekBlock):
    """One layer."""

    attention = JoinedAttention


class BailingMoe(Decoder):
    """By modeling_bailing_moe.py of Ling-lite."""

    block = LingBlock
    renamed: ClassVar[Mapping[str, str]] = {
        "embed_tokens": "word_embeddings",
        "self_attn.o_proj": "attention.dense",
        "self_attn.q_k_v_proj": "attention.query_key_value",
    }


# By `model_type`; the one of Ling 2.0, which is in bailing_torch.py, is told by its groups.
MODELS: dict[str, type[Decoder]] = {
    "bailing_moe": BailingMoe,
    "deci": Deci,
    "deepseek": Deepseek,
    "maincoder": Maincoder,
    "maple": Maple,
    "nanbeige": Nanbeige,
    "nemotron-nas": Deci,
    "plm": Plm,
    "rwkv7": Rwkv7,
    "smallthinker": SmallThinker,
    "spark2_5": Spark,
}


def save(config: Mapping[str, Any], folder: Path) -> None:
    """Write config.json and random tensors."""
    config = {key: config[key] for key in config if config[key] is not None}
    name = MODELS[config["model_type"]].name or MODELS[config["model_type"]].__name__
    config["architectures"] = [f"{name}ForCausalLM"]
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with torch.device("meta"):
        model = MODELS[config["model_type"]](config)
    shapes = {
        published(name, model): tuple(values.shape) for name, values in model.state_dict().items()
    }
    save_file(random_tensors(shapes), folder / "model.safetensors", metadata={"format": "pt"})


def published(name: str, model: Decoder) -> str:
    """A parameter's name in a folder."""
    for own, other in model.renamed.items():
        name = name.replace(own, other)
    return name


def is_in(folder: Path) -> bool:
    """Whether a folder has such a model."""
    return _config(folder)["model_type"] in MODELS


def logits(folder: Path, tokens: Sequence[int]) -> NDArray[np.float32]:
    """The logits after each token: f32 (T, V)."""
    config = _config(folder)
    model = MODELS[config["model_type"]](config)
    tensors = load_file(folder / "model.safetensors")
    names = {name: published(name, model) for name in model.state_dict()}
    model.load_state_dict({name: tensors[names[name]] for name in names})
    with torch.no_grad():
        result: Any = model(torch.tensor(tokens)).numpy()
    return np.asarray(result)


def _config(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return config
