"""MiniCPM-V 2.6: Qwen2 that reads images, and cuts large ones into slices of their own shape.

Source: "MiniCPM-V: A GPT-4V Level MLLM on Your Phone" (Yao et al., 2024), and modeling_minicpmv.py
of openbmb/MiniCPM-V-2_6. The part of MiniCPM-o 2.6 that reads images is the same in GGUF files.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.bundle import GridInput, ImageSlices
from hearthd.models.config import ConfigError, OtherFamily
from hearthd.models.decoder.config.decoder_config import DecoderConfig, from_gguf_metadata
from hearthd.models.decoder.layers import DecoderModel
from hearthd.models.families import llama, qwen2
from hearthd.models.towers import minicpmv as towers
from hearthd.models.towers import siglip

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hearthd.models.config import ImageGrid
    from hearthd.models.decoder.architecture import Architecture
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor

# The text that the processor of each version writes for a part of an image.
_TEXTS: Mapping[str, str] = {
    "im_start": "<image>", "im_end": "</image>", "slice_start": "<slice>",
    "slice_end": "</slice>", "unk": "<unk>", "im_id_start": "<image_id>",
    "im_id_end": "</image_id>",
}  # fmt: skip

_PROCESSOR = ("max_slice_nums", "patch_size", "scale_resolution")
# As llama.cpp numbers MiniCPM-V 2.6, 4.0 and 4.5, and MiniCPM-o 2.6 and 4.5.
_GGUF_VERSIONS = (3, 4, 5, 6, 100045)


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig, towers.TowerConfig):
    """The shape of a model."""

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_tower(self.hidden)

    @property
    @override
    def image(self) -> ImageGrid:
        """Parts of images, of any shape."""
        return self.parts


class PartReader(DecoderModel):
    """A text model with a tower."""

    def add_tower(self, config: Config) -> None:
        """Add the tower."""
        self.tower = towers.Tower(config)
        self.resampler = towers.Resampler(config, config.hidden)

    def read_patches(self, patches: Tensor, places: Tensor, grid: Tensor) -> Tensor:
        """Rows of embeddings (Q, E) of a part of an image: see `minicpmv.Tower`."""
        return self.resampler(self.tower(patches, places, grid), places, grid)


class MiniCpmV(llama.Llama, PartReader):
    """Qwen2 with a tower."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.add_tower(config)


def config_reader(
    version: float, text_fields: Callable[[ConfigJson], dict[str, Any]], config: type[Config]
) -> Callable[[ConfigJson], Config]:
    """Reads config.json of a version, whose text model has these fields."""

    def read(data: ConfigJson) -> Config:
        if (got := data.number("version")) != version:
            raise OtherFamily(f"config.json: version: got {got}, not {version}")
        data.section("slice_config").ignore("model_type", *_PROCESSOR)
        return config(**text_fields(data), **towers.tower_fields(data))

    return read


def from_gguf(data: GgufMetadata) -> Config:
    """Read the metadata of a text model and of its projector."""
    text = from_gguf_metadata(data)
    return Config(**text, **gguf_tower_fields(data, text["hidden"]))


def gguf_tower_fields(data: GgufMetadata, hidden: int) -> dict[str, Any]:
    """The fields of the tower, from a projector's metadata; raises ConfigError."""
    keys = data.projector("resampler", hidden, "resampler.proj.weight", axis=0)
    if (version := keys.size("minicpmv_version", default=2)) not in _GGUF_VERSIONS:
        raise ConfigError(
            f"clip.minicpmv_version: got {version}, supported: "
            f"{', '.join(map(str, _GGUF_VERSIONS))}, of MiniCPM-V 2.6 and later"
        )
    return towers.gguf_tower_fields(
        keys, data.rows("v.position_embd.weight"), data.rows("resampler.query")
    )


def image_input(config: Config, data: ConfigJson) -> GridInput:
    """Read the processor's settings; defaults are the published models' settings."""
    data.fixed(
        patch_size=config.patch_size, scale_resolution=config.image_size,
        image_feature_size=config.queries, slice_mode=True, use_image_id=True, **_TEXTS,
    )  # fmt: skip
    data.ignore("version", "auto_map")
    data.rename(norm_mean="image_mean", norm_std="image_std")
    slices = ImageSlices(
        side=config.image_size,
        rows=config.queries,
        max_count=data.size("max_slice_nums", default=9),
        begin="<image_id>{image}</image_id>",
        start="<slice>",
        end="</slice>",
        line_end="\n",
    )
    return GridInput(
        patch=config.patch_size,
        merged=1,
        min_pixels=1,
        max_pixels=config.max_patches * config.patch_size**2,
        **siglip.pixel_fields(data, "bicubic"),
        marker="(<image>./</image>)",
        start="<image>",
        placeholder="<unk>",
        end="</image>",
        axes=1,
        slices=slices,
        own_line=True,
    )


def with_tower(text: Architecture[Any], **changes: Any) -> Architecture[Any]:
    """A text model's architecture, with the names of a tower."""
    tensors = replace(
        text.tensors,
        prefixes=("llm.model.", ""),
        others=("resampler.pos_embed",),  # computed: sines and cosines
        towers=towers.tower_names(),
    )
    changes = {"config": Config, "read_gguf": from_gguf, **changes}
    return replace(
        text, model_types=("minicpmv",), images=image_input, tensors=tensors, gguf_name=text.name,
        **changes,
    )  # fmt: skip


ARCHITECTURE = with_tower(
    qwen2.ARCHITECTURE,
    name="minicpmv",
    read_config_json=config_reader(
        2.6, lambda data: qwen2.qwen_fields(data) | {"attention_bias": True}, Config
    ),
    model=MiniCpmV,
)
