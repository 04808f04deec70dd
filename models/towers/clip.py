"""CLIP's ViT, as LLaVA reads it: the pixels of a square image to a hidden state for each patch.

Source: "Learning Transferable Visual Models From Natural Language Supervision" (Radford et al.,
2021), "Visual Instruction Tuning" (Liu et al., 2023), and the models `clip_vision_model` and
`llava` of transformers. `N` is patches, `E` the hidden width of the tower.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hearthd.models.config import ConfigError
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn, ops
from hearthd.models.towers import siglip
from hearthd.models.towers.siglip import CHANNELS, Block, quick_gelu

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.projector_metadata import ProjectorMetadata
    from hearthd.models.dsl.graph import Tensor

_ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {"gelu": f.gelu, "quick_gelu": quick_gelu}


@dataclass(frozen=True, kw_only=True)
class TowerConfig(siglip.TowerConfig):
    """The shape of a tower, as fields of the configuration of a model that has one.

    layers_read       the first layers, after which the hidden states are projected
    tower_activation  gelu or quick_gelu
    """

    layers_read: int
    tower_activation: str

    def require_layers_read(self) -> None:
        """Raise ConfigError for more layers than there are, or another activation."""
        if self.layers_read > self.tower_layers:
            raise ConfigError(
                f"vision_feature_layer: expected one of {self.tower_layers} layers, got "
                f"{self.layers_read}"
            )
        if self.tower_activation not in _ACTIVATIONS:
            raise ConfigError(
                f"hidden_act: got {self.tower_activation!r:.80}, supported: "
                f"{', '.join(_ACTIVATIONS)}"
            )


class Tower(nn.Module):
    """The whole tower. A learned vector, the class, precedes the patches in all layers.

    Files have later layers, and a norm after them, which are not read.
    """

    def __init__(self, config: TowerConfig) -> None:
        hidden, self.patch_size = config.tower_hidden, config.patch_size
        eps, activation = config.tower_norm_eps, _ACTIVATIONS[config.tower_activation]
        self.layers_read = config.layers_read
        self.class_embedding = nn.Embedding(1, hidden)
        self.patch_embedding = nn.Linear(CHANNELS * self.patch_size**2, hidden)
        self.position_embedding = nn.Embedding(config.patches_per_side**2 + 1, hidden)
        self.pre_layernorm = nn.LayerNorm(hidden, eps)
        self.layers = [Block(config, eps, activation) for _ in range(config.tower_layers)]
        self.post_layernorm = nn.LayerNorm(hidden, eps)

    def __call__(self, pixels: Tensor) -> Tensor:
        """Pixels f32 (3, S, S), normalized -> (N, E), a row of patches after the other."""
        patches = self.patch_embedding(siglip.patches(pixels, self.patch_size))
        h = ops.concatenate(self.class_embedding.weight, patches, axis=0)
        h = self.pre_layernorm(h + self.position_embedding.weight)
        for block in self.layers[: self.layers_read]:
            h = block(h)
        return f.narrow(h, 0, 1, h.shape[0])


class Projector(nn.Module):
    """An MLP from the tower's width to the text model's."""

    def __init__(self, width: int, hidden: int, *, bias: bool = True) -> None:
        self.linear_1 = nn.Linear(width, hidden, bias=bias)
        self.linear_2 = nn.Linear(hidden, hidden, bias=bias)

    def __call__(self, h: Tensor) -> Tensor:
        """Hidden states (N, E) -> rows of embeddings (N, hidden)."""
        return self.linear_2(f.gelu(self.linear_1(h)))


def tower_fields(data: ConfigJson, vision: ConfigJson) -> dict[str, Any]:
    """The fields of `TowerConfig`, from config.json and its object; raises ConfigError."""
    data.fixed(
        projector_hidden_act="gelu", vision_feature_select_strategy="default",
        vision_feature_layer=-2, multimodal_projector_bias=True,
    )  # fmt: skip
    vision.fixed(model_type="clip_vision_model", num_channels=CHANNELS)
    vision.ignore("attention_dropout", "initializer_factor", "projection_dim", "vocab_size")
    image, patch = vision.size("image_size", default=336), vision.size("patch_size", default=14)
    layers = vision.size("num_hidden_layers", default=24)
    data.fixed(image_seq_length=(image // patch) ** 2)
    return {
        "image_size": image,
        "patch_size": patch,
        "tower_layers": layers,
        "layers_read": layers - 1,
        "tower_hidden": vision.size("hidden_size", default=1024),
        "tower_ffn": vision.size("intermediate_size", default=4096),
        "tower_heads": vision.size("num_attention_heads", default=16),
        "tower_norm_eps": vision.number("layer_norm_eps", default=1e-5),
        "tower_activation": vision.text("hidden_act", default="quick_gelu"),
    }


def gguf_tower_fields(data: ProjectorMetadata) -> dict[str, Any]:
    """The fields of `TowerConfig`, from the keys of a projector's GGUF file; raises ConfigError.

    The converter leaves out the layers that are not read.
    """
    fields = siglip.gguf_tower_fields(data)
    layers = data.counts("vision.feature_layer", default=[fields["tower_layers"]])
    if len(layers) != 1:
        raise ConfigError(f"clip.vision.feature_layer: got {layers!r:.80}, supported is one layer")
    uses_gelu = data.flag("use_gelu", default=False)
    return {
        **fields,
        "layers_read": layers[0],
        "tower_activation": "gelu" if uses_gelu else "quick_gelu",
    }


def tower_names(*prefixes: str) -> dict[str, TensorNames]:
    """The names of the tensors of a tower and a projector, in folders after the prefixes."""
    siglips = siglip.tower_names()
    tower = TensorNames(
        gguf={
            **siglips.gguf,
            "class_embedding.weight": "class_embd",
            "pre_layernorm": "pre_ln",
        },
        gguf_prefix="v.",
        folder={
            **siglips.folder,
            "class_embedding.weight": "embeddings.class_embedding",
            "pre_layernorm": "pre_layrnorm",
        },
        layers="encoder.layers",
        prefixes=tuple(
            f"{prefix}vision_tower.{model}"
            for prefix in prefixes
            for model in ("", "vision_model.")
        ),
    )
    projector = TensorNames(
        gguf={"linear_1": "0", "linear_2": "2"},
        gguf_prefix="mm.",
        prefixes=tuple(f"{prefix}multi_modal_projector." for prefix in prefixes),
    )
    return {"tower": tower, "projector": projector}
