"""SigLIP's tower: the pixels of a square image to a hidden state for each patch.

Source: "Sigmoid Loss for Language Image Pre-Training" (Zhai et al., 2023), and the model
`siglip_vision_model` of transformers. `N` is patches, `E` the hidden width of the tower.

Idefics3 looks up positions by fractions of the image. For its published sizes, of 26, 27 and 32
patches in a row, these are the numbers of the patches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hearthd.models.config import ConfigError
from hearthd.models.decoder.layers import HeadLinear
from hearthd.models.decoder.tensor_names import TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn, ops
from hearthd.models.towers.tower_config import LayersConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hearthd.bundle import Resampling
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.projector_metadata import ProjectorMetadata
    from hearthd.models.dsl.graph import Tensor

CHANNELS = 3


@dataclass(frozen=True, kw_only=True)
class TowerConfig(LayersConfig):
    """The shape of a tower for images of one size.

    image_size  pixels of a side of an image
    patch_size  pixels of a side of a patch
    """

    image_size: int
    patch_size: int
    tower_norm_eps: float

    @property
    def patches_per_side(self) -> int:
        """Patches in a row, and rows of patches."""
        return self.image_size // self.patch_size

    def require_tower(self, group: int) -> None:
        """Raise ConfigError unless squares of `group` x `group` patches fill an image."""
        self.require_layers()
        side = self.patch_size * group
        if self.image_size % side:
            raise ConfigError(f"image_size: got {self.image_size}, expected a multiple of {side}")


# The kernel of attention reads heads in vectors of 16 values.
_LANES = 16


class Attention(nn.Module):
    """Attention of every patch to every patch."""

    def __init__(self, config: LayersConfig) -> None:
        hidden, heads = config.tower_hidden, config.tower_heads
        self.q_proj = HeadLinear(hidden, heads, hidden // heads, bias=True)
        self.k_proj = HeadLinear(hidden, heads, hidden // heads, bias=True)
        self.v_proj = HeadLinear(hidden, heads, hidden // heads, bias=True)
        self.out_proj = nn.Linear(hidden, hidden, bias=True)

    def __call__(
        self,
        x: Tensor,
        count: Tensor | None = None,
        rotation: Callable[[Tensor], Tensor] | None = None,
    ) -> Tensor:
        """(N, E) -> (N, E); the first `count` i32 (1,) rows are the image's; None: all.

        `rotation` turns queries and keys, in a tower with rotary positions.
        """
        query, key, value = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        if rotation is not None:
            query, key = rotation(query), rotation(key)
        return self.out_proj(attended(query, key, value, count))


def attended(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    count: Tensor | None = None,
    *,
    scale: float | None = None,
) -> Tensor:
    """Attention of each query to the first `count` i32 (1,) keys, or to all of them.

    Query (N, H, D), key and value (R, H, D) -> (N, H * D). Heads are padded with zeros to widths
    that the kernel reads. `scale` is D^-0.5 unless given.
    """
    rows, heads, width = query.shape
    if more := -width % _LANES:
        padding = ((0, 0, 0), (0, 0, 0), (0, more, 0))
        query, key, value = (ops.pad(x, padding=padding, value=0.0) for x in (query, key, value))
    keys, values = (ops.reshape(x, shape=(x.shape[0], heads * x.shape[2])) for x in (key, value))
    mixed = f.full_attention(query, keys, values, count, scale=scale or width**-0.5)
    return ops.reshape(f.narrow(mixed, 2, 0, width), shape=(rows, heads * width))


def quick_gelu(x: Tensor) -> Tensor:
    """OpenAI's approximation of GELU."""
    return x * f.sigmoid(x * 1.702)


class Block(nn.Module):
    """One layer: attention and MLP, each normalized before."""

    def __init__(
        self,
        config: LayersConfig,
        eps: float,
        activation: Callable[[Tensor], Tensor] = f.gelu_tanh,
    ) -> None:
        hidden, self.activation = config.tower_hidden, activation
        self.layer_norm1 = nn.LayerNorm(hidden, eps)
        self.self_attn = Attention(config)
        self.layer_norm2 = nn.LayerNorm(hidden, eps)
        self.fc1 = nn.Linear(hidden, config.tower_ffn, bias=True)
        self.fc2 = nn.Linear(config.tower_ffn, hidden, bias=True)

    def __call__(
        self,
        h: Tensor,
        count: Tensor | None = None,
        rotation: Callable[[Tensor], Tensor] | None = None,
    ) -> Tensor:
        """(N, E) -> (N, E): see `Attention`."""
        h = h + self.self_attn(self.layer_norm1(h), count, rotation)
        x = self.layer_norm2(h)
        return h + self.fc2(self.activation(self.fc1(x)))


class Layers(nn.Module):
    """The whole tower without its last norm."""

    def __init__(self, config: TowerConfig) -> None:
        self.patch_size, count = config.patch_size, config.patches_per_side**2
        hidden = config.tower_hidden
        self.patch_embedding = nn.Linear(CHANNELS * self.patch_size**2, hidden, bias=True)
        self.position_embedding = nn.Embedding(count, hidden)
        eps = config.tower_norm_eps
        self.layers = [Block(config, eps) for _ in range(config.tower_layers)]

    def states(self, pixels: Tensor) -> list[Tensor]:
        """Pixels f32 (3, S, S), normalized -> (N, E) before each layer and after the last one.

        A row of patches follows the other.
        """
        h = self.patch_embedding(patches(pixels, self.patch_size))
        states = [h + self.position_embedding.weight]
        for block in self.layers:
            states.append(block(states[-1]))
        return states


class Tower(Layers):
    """The whole tower."""

    def __init__(self, config: TowerConfig) -> None:
        super().__init__(config)
        self.post_layernorm = nn.LayerNorm(config.tower_hidden, config.tower_norm_eps)

    def __call__(self, pixels: Tensor) -> Tensor:
        """Pixels f32 (3, S, S), normalized -> (N, E), a row of patches after the other."""
        return self.post_layernorm(self.states(pixels)[-1])


def patches(pixels: Tensor, size: int) -> Tensor:
    """(C, S, S) -> (N, C * size * size): the columns of a convolution's weights.

    What is left of an image behind its patches is not read.
    """
    channels, height, width = pixels.shape
    if rest := width % size:
        height, width = height - rest, width - rest
        pixels = f.narrow(f.narrow(pixels, 1, 0, height), 2, 0, width)
    shape = (channels, height // size, size, width // size, size)
    grid = ops.transpose(ops.reshape(pixels, shape=shape), order=(1, 3, 0, 2, 4))
    return ops.reshape(grid, shape=(shape[1] * shape[3], channels * size * size))


def squares(h: Tensor, side: int) -> Tensor:
    """Join the hidden states of squares of patches: (N, E) -> (N / side^2, side^2 * E).

    The patches of a square follow each other as they do in the image, which is a square too.
    """
    count, hidden = h.shape
    across = round(count**0.5) // side
    grid = ops.reshape(h, shape=(across, side, across, side, hidden))
    joined = ops.transpose(grid, order=(0, 2, 1, 3, 4))
    return ops.reshape(joined, shape=(across**2, side**2 * hidden))


def tower_fields(data: ConfigJson) -> dict[str, Any]:
    """The fields of `TowerConfig`, from the object of config.json; raises ConfigError."""
    data.fixed(hidden_act="gelu_pytorch_tanh", num_channels=CHANNELS)
    data.ignore("attention_dropout", "max_image_size", "size", "tie_word_embeddings")
    return {
        "image_size": data.size("image_size"),
        "patch_size": data.size("patch_size"),
        "tower_layers": data.size("num_hidden_layers", default=12),
        "tower_hidden": data.size("hidden_size"),
        "tower_ffn": data.size("intermediate_size", default=3072),
        "tower_heads": data.size("num_attention_heads"),
        "tower_norm_eps": data.number("layer_norm_eps", default=1e-6),
    }


def gguf_tower_fields(data: ProjectorMetadata) -> dict[str, Any]:
    """The fields of `TowerConfig`, from the keys of a projector's GGUF file; raises ConfigError."""
    return {
        "image_size": data.size("vision.image_size"),
        "patch_size": data.size("vision.patch_size"),
        "tower_layers": data.size("vision.block_count"),
        "tower_hidden": data.size("vision.embedding_length"),
        "tower_ffn": data.size("vision.feed_forward_length"),
        "tower_heads": data.size("vision.attention.head_count"),
        "tower_norm_eps": data.number("vision.attention.layer_norm_epsilon"),
    }


# Pillow's numbers of its filters.
_FILTERS: Mapping[int, Resampling] = {1: "lanczos", 2: "bilinear", 3: "bicubic"}
_NUMBERS = {name: number for number, name in _FILTERS.items()}
_PADDING = "do_pad"
_STEPS = ("do_convert_rgb", _PADDING, "do_rescale", "do_resize")


def resampling(data: ConfigJson, usual: Resampling, *, may_pad: bool = False) -> Resampling:
    """The filter of a processor, by default `usual`. All other steps must be on.

    With `may_pad`, the caller reads whether images are padded. Raises ConfigError.
    """
    steps = [step for step in _STEPS if step != _PADDING or not may_pad]
    data.fixed(rescale_factor=1 / 255, **dict.fromkeys(steps, True))
    data.ignore("image_processor_type", "processor_class", "return_row_col_info")
    filter_ = data.count("resample", default=_NUMBERS[usual])
    if filter_ not in _FILTERS:
        raise ConfigError(f"resample: got {filter_}, supported: {', '.join(map(str, _FILTERS))}")
    return _FILTERS[filter_]


# What processors normalize pixels with: the mean, and what divides the rest.
HALF = (0.5,) * CHANNELS, (0.5,) * CHANNELS
CLIP = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def pixel_fields(
    data: ConfigJson,
    usual: Resampling,
    pixels: tuple[tuple[float, ...], ...] = HALF,
    *,
    may_pad: bool = False,
) -> dict[str, Any]:
    """The filter and the normalization of a processor, as fields of `ImageInput`.

    `usual` is the filter of a processor that names none, and `pixels` its normalization. For
    `may_pad` see `resampling`. Raises ConfigError.
    """
    data.fixed(do_normalize=True)
    mean, std = pixels
    return {
        "resampling": resampling(data, usual, may_pad=may_pad),
        "mean": tuple(data.numbers("image_mean")) if data.has("image_mean") else mean,
        "std": tuple(data.numbers("image_std")) if data.has("image_std") else std,
    }


def tower_names(*prefixes: str) -> TensorNames:
    """The names of a tower's tensors, in folders after one of the prefixes."""
    return TensorNames(
        gguf={
            "patch_embedding": "patch_embd",
            "position_embedding": "position_embd",
            "layer_norm1": "ln1",
            "self_attn.q_proj": "attn_q",
            "self_attn.k_proj": "attn_k",
            "self_attn.v_proj": "attn_v",
            "self_attn.out_proj": "attn_out",
            "layer_norm2": "ln2",
            "fc1": "ffn_up",
            "fc2": "ffn_down",
            "post_layernorm": "post_ln",
        },
        gguf_prefix="v.",
        folder={
            "patch_embedding": "embeddings.patch_embedding",
            "position_embedding": "embeddings.position_embedding",
            "fc1": "mlp.fc1",
            "fc2": "mlp.fc2",
        },
        layers="encoder.layers",
        prefixes=prefixes,
    )
