"""The tower of LLaVA in GGUF files, as a script of llama.cpp writes it.

The converter does not know these towers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gguf

from hearthd.models.families.granite_vision import Config as GraniteConfig
from hearthd.models.families.llava_next import Config as LlavaNextConfig
from tests.models.families.gguf_files import is_of_tower

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from hearthd.baker.weights.safetensors import SafetensorsSource

_LINE_END = "image_newline"


def add_llava(writer: gguf.GGUFWriter, config: Any) -> None:
    """Write the keys of a tower, and those of tiles."""
    writer.add_vision_image_size(config.image_size)
    writer.add_vision_attention_layernorm_eps(config.tower_norm_eps)
    writer.add_bool("clip.has_text_encoder", False)
    writer.add_bool("clip.has_llava_projector", True)
    writer.add_array("clip.vision.feature_layer", _layers_read(config))
    if isinstance(config, LlavaNextConfig | GraniteConfig):
        side = config.image_size
        writer.add_array("clip.vision.image_grid_pinpoints", [2 * side, side, side, 3 * side])
        writer.add_string("clip.vision.image_aspect_ratio", "anyres")
        writer.add_string("clip.vision.mm_patch_merge_type", "spatial_unpad")


def _layers_read(config: Any) -> list[int]:
    return [*config.read_layers] if isinstance(config, GraniteConfig) else [config.layers_read]


def llava_tensors(source: SafetensorsSource, layers: int) -> Iterator[tuple[str, NDArray[Any]]]:
    """The tensors by name, but not what is not read: CLIP's last layer, and the norm after it."""
    names_in_folder = [name for name in source.names() if ".head." not in name]
    is_clip = any(name.endswith("class_embedding") for name in names_in_folder)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, layers)
    projector = {"linear_1": "mm.0", "linear_2": "mm.2"}
    for name in filter(is_of_tower, names_in_folder):
        if name.endswith(_LINE_END):
            yield f"model.{_LINE_END}", source.read(name)
            continue
        _, _, inner = name.rpartition("vision_tower.")
        *_, module, suffix = name.split(".")
        if module in projector:
            yield f"{projector[module]}.{suffix}", source.read(name)
        elif module != "post_layernorm" and not (is_clip and f"layers.{layers - 1}." in name):
            inner = inner.removeprefix("vision_model.")
            stored = names.get_name(f"vision_tower.vision_model.{inner}", (".weight", ".bias"))
            assert stored is not None, name
            yield stored, source.read(name)
