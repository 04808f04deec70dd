"""InternViT, InternVL's tower: the pixels of a square image to rows of embeddings.

Source: "InternVL3" (Zhu et al., 2025), and the model `internvl` of transformers. `N` is patches,
`E` the hidden width of the tower. The tower of 6 billion parameters, with other norms, is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hearthd.models.config import ConfigError
from hearthd.models.decoder.layers import HeadLinear
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn, ops
from hearthd.models.dsl.types import DType
from hearthd.models.towers import siglip
from hearthd.models.towers.siglip import CHANNELS, attended

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.projector_metadata import ProjectorMetadata
    from hearthd.models.dsl.graph import Tensor

_PROJECTOR_EPS = 1e-5


@dataclass(frozen=True, kw_only=True)
class TowerConfig(siglip.TowerConfig):
    """The shape of a tower, as fields of the configuration of a model that has one.

    tower_bias      whether queries, keys and values have biases
    joined_patches  patches of a side of the square that gives one row of embeddings
    """

    tower_bias: bool
    joined_patches: int


class ColumnScale(nn.Module):
    """A factor for each column."""

    def __init__(self, width: int) -> None:
        self.weight = nn.parameter(width, dtype=DType.F32)

    def __call__(self, x: Tensor) -> Tensor:
        """(N, E) -> (N, E)."""
        return x * f.along_axes(self.weight, x, (0,))


class Block(nn.Module):
    """One layer: attention of every patch to every patch and MLP, each normalized before."""

    def __init__(self, config: TowerConfig) -> None:
        hidden, heads, eps = config.tower_hidden, config.tower_heads, config.tower_norm_eps
        width, bias = hidden // heads, config.tower_bias
        self.layernorm_before = nn.LayerNorm(hidden, eps)
        self.q_proj = HeadLinear(hidden, heads, width, bias=bias)
        self.k_proj = HeadLinear(hidden, heads, width, bias=bias)
        self.v_proj = HeadLinear(hidden, heads, width, bias=bias)
        self.projection_layer = nn.Linear(hidden, hidden, bias=True)
        self.lambda_1 = ColumnScale(hidden)
        self.layernorm_after = nn.LayerNorm(hidden, eps)
        self.fc1 = nn.Linear(hidden, config.tower_ffn, bias=True)
        self.fc2 = nn.Linear(config.tower_ffn, hidden, bias=True)
        self.lambda_2 = ColumnScale(hidden)

    def __call__(self, h: Tensor) -> Tensor:
        """(N, E) -> (N, E)."""
        x = self.layernorm_before(h)
        mixed = attended(self.q_proj(x), self.k_proj(x), self.v_proj(x))
        h = h + self.lambda_1(self.projection_layer(mixed))
        x = self.fc1(self.layernorm_after(h))
        return h + self.lambda_2(self.fc2(f.gelu(x)))


class Tower(nn.Module):
    """The whole tower. A learned vector, the class, precedes the patches in all layers."""

    def __init__(self, config: TowerConfig) -> None:
        hidden, self.patch_size = config.tower_hidden, config.patch_size
        self.class_embedding = nn.Embedding(1, hidden)
        self.patch_embedding = nn.Linear(CHANNELS * self.patch_size**2, hidden, bias=True)
        self.position_embedding = nn.Embedding(config.patches_per_side**2 + 1, hidden)
        self.layers = [Block(config) for _ in range(config.tower_layers)]

    def __call__(self, pixels: Tensor) -> Tensor:
        """Pixels f32 (3, S, S), normalized -> (N, E), a row of patches after the other."""
        patches = self.patch_embedding(siglip.patches(pixels, self.patch_size))
        h = ops.concatenate(self.class_embedding.weight, patches, axis=0)
        h = h + self.position_embedding.weight
        for block in self.layers:
            h = block(h)
        return f.narrow(h, 0, 1, h.shape[0])


class Projector(nn.Module):
    """Joins the hidden states of squares of patches, and projects them to the text model."""

    def __init__(self, config: TowerConfig, hidden: int) -> None:
        self.side = config.joined_patches
        joined = config.tower_hidden * self.side**2
        self.layer_norm = nn.LayerNorm(joined, _PROJECTOR_EPS)
        self.linear_1 = nn.Linear(joined, hidden, bias=True)
        self.linear_2 = nn.Linear(hidden, hidden, bias=True)

    def __call__(self, h: Tensor) -> Tensor:
        """Hidden states of the tower (N, E) -> rows of embeddings (N / side^2, hidden)."""
        joined = self.layer_norm(siglip.squares(h, self.side))
        return self.linear_2(f.gelu(self.linear_1(joined)))


def tower_fields(data: ConfigJson) -> dict[str, Any]:
    """The fields of `TowerConfig`, from config.json; raises ConfigError."""
    vision = data.section("vision_config")
    data.fixed(
        projector_hidden_act="gelu", vision_feature_layer=-1,
        vision_feature_select_strategy="default",
    )  # fmt: skip
    vision.fixed(
        model_type="internvl_vision", hidden_act="gelu", num_channels=CHANNELS, use_qk_norm=False,
        norm_type="layer_norm", use_mask_token=False, use_absolute_position_embeddings=True,
        use_mean_pooling=True,
    )  # fmt: skip
    vision.ignore(
        "attention_dropout", "hidden_dropout_prob", "layer_scale_init_value", "projection_dropout"
    )
    ratio = data.number("downsample_ratio", default=0.5)
    fields = {
        "image_size": _side(vision, "image_size", 448),
        "patch_size": _side(vision, "patch_size", 14),
        "tower_layers": vision.size("num_hidden_layers", default=24),
        "tower_hidden": vision.size("hidden_size", default=1024),
        "tower_ffn": vision.size("intermediate_size", default=4096),
        "tower_heads": vision.size("num_attention_heads", default=16),
        "tower_norm_eps": vision.number("layer_norm_eps", default=1e-6),
        "tower_bias": vision.flag("attention_bias", default=False),
        "joined_patches": int(1 / ratio),
    }
    rows = (fields["image_size"] // fields["patch_size"] // fields["joined_patches"]) ** 2
    data.fixed(image_seq_length=rows)
    return fields


def _side(data: ConfigJson, key: str, default: int) -> int:
    """A number, or the only number of a pair; raises ConfigError."""
    sides = set(data.counts(key, default=(default, default)))
    if len(sides) != 1:
        raise ConfigError(f"{key}: got {sorted(sides)}, expected equal sides")
    return sides.pop()


def gguf_tower_fields(data: ProjectorMetadata, *, bias: bool) -> dict[str, Any]:
    """The fields of `TowerConfig`, from the keys of a projector's GGUF file; raises ConfigError."""
    return {
        **siglip.gguf_tower_fields(data),
        "tower_bias": bias,
        "joined_patches": data.size("vision.projector.scale_factor", default=2),
    }


def tower_names(*prefixes: str) -> dict[str, TensorNames]:
    """The names of the tensors of a tower and a projector, in folders after the prefixes."""
    heads = {f"{part}_proj": f"attention.{part}_proj" for part in "qkv"}
    tower = TensorNames(
        gguf={
            "class_embedding.weight": "class_embd",
            "patch_embedding": "patch_embd",
            "position_embedding": "position_embd",
            "layernorm_before": "ln1",
            "q_proj": "attn_q",
            "k_proj": "attn_k",
            "v_proj": "attn_v",
            "projection_layer": "attn_out",
            "lambda_1": "ls1",
            "layernorm_after": "ln2",
            "fc1": "ffn_up",
            "fc2": "ffn_down",
            "lambda_2": "ls2",
        },
        gguf_prefix="v.",
        folder={
            "class_embedding.weight": "embeddings.cls_token",
            "patch_embedding": "embeddings.patch_embeddings.projection",
            "position_embedding.weight": "embeddings.position_embeddings",
            **heads,
            "projection_layer": "attention.projection_layer",
            "lambda_1.weight": "lambda_1",
            "fc1": "mlp.fc1",
            "fc2": "mlp.fc2",
            "lambda_2.weight": "lambda_2",
        },
        layers="encoder.layer",
        prefixes=tuple(f"{prefix}vision_tower." for prefix in prefixes),
    )
    projector = TensorNames(
        gguf={"layer_norm": "0", "linear_1": "1", "linear_2": "3"},
        gguf_prefix="mm.model.mlp.",
        prefixes=tuple(f"{prefix}multi_modal_projector." for prefix in prefixes),
    )
    return {"tower": tower, "projector": projector}
