"""A Gemma 4 of two layers that reads images, with random weights and a token for each byte."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hearthd.models.families.gemma4_images import ARCHITECTURE, Config
from tests.baker.small_smolvlm import write_model
from tests.models.families.cases import random_tensors

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hearthd.models.decoder.architecture import Architecture

SPECIAL = ("<|turn>", "<turn|>", "<|image>", "<|image|>", "<image|>")
PATCH, MERGED, ROWS = 4, 3, 70
CONFIG = Config(
    layers=2, hidden=64, ffn=96, heads=2, kv_heads=1, head_dim=64, max_context=2048,
    vocab_size=256 + len(SPECIAL), norm_eps=1e-6, rope_base=1e6, tied=True, windows=(32, None),
    local_head_dim=64, local_rope_base=1e4, layer_embedding=32, caching_layers=2, ffns=(96, 96),
    logit_cap=None, patch_size=PATCH, merged_patches=MERGED, table_side=MERGED * ROWS,
    tower_layers=2, tower_hidden=64, tower_ffn=96, tower_heads=2, tower_head_dim=32,
    tower_norm_eps=1e-6, tower_clips=True, tower_standardizes=False,
)  # fmt: skip
TEMPLATE = (
    "{% for message in messages %}{{ '<|turn>' + message['role'] + '\n' }}"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for item in message['content'] %}"
    "{% if item['type'] == 'image' %}{{ '<|image|>' }}"
    "{% elif item['type'] == 'text' %}{{ item['text'] }}{% endif %}{% endfor %}{% endif %}"
    "{{ '<turn|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|turn>model\n' }}{% endif %}"
)


def token(name: str) -> int:
    """The id of a special token."""
    return 256 + SPECIAL.index(name)


def small_gemma4(folder: Path) -> Path:
    """Write a Hugging Face folder; returns it."""
    write_folder(folder, ARCHITECTURE, CONFIG, {}, TEMPLATE, SPECIAL)
    return folder


def small_gemma4_blocks(folder: Path) -> Path:
    """As `small_gemma4`, of the kind of the larger models: rows of an image see each other.

    An image has more rows than the window.
    """
    config = replace(CONFIG, layer_embedding=None, image_blocks=True)
    text = {
        **config_json(config.vocab_size)["text_config"],
        "hidden_size_per_layer_input": 0,
        "use_bidirectional_attention": "vision",
    }
    write_folder(folder, ARCHITECTURE, config, {"text_config": text}, TEMPLATE, SPECIAL)
    return folder


def write_folder(
    folder: Path,
    family: Architecture[Any],
    config: Config,
    settings: Mapping[str, Any],
    template: str,
    special: tuple[str, ...],
) -> None:
    """Write a Hugging Face folder with random weights, and more settings in config.json."""
    shapes = {}
    for name, parameter in family.model(config).parameters().items():
        stored = family.tensors.find(config, name, (), gguf=False).name
        if stored.startswith("model.") and name.partition(".")[0] not in family.tensors.towers:
            stored = stored.replace("model.", "model.language_model.", 1)
        shape = parameter.shape
        if stored.endswith("position_embedding_table"):
            shape = (2, shape[0] // 2, shape[1])
        shapes[stored] = () if stored.endswith(("put_min", "put_max")) else shape
    described = {**config_json(config.vocab_size), **settings}
    write_model(folder, random_tensors(shapes), described, PROCESSOR, template, special)


def config_json(vocab_size: int) -> dict[str, Any]:
    """The content of config.json."""
    return {
        "architectures": ["Gemma4ForConditionalGeneration"],
        "model_type": "gemma4",
        "image_token_id": token("<|image|>"),
        "tie_word_embeddings": True,
        "text_config": {
            "model_type": "gemma4_text",
            "eos_token_id": token("<turn|>"),
            "pad_token_id": 0,
            "num_hidden_layers": CONFIG.layers,
            "hidden_size": CONFIG.hidden,
            "intermediate_size": CONFIG.ffn,
            "num_attention_heads": CONFIG.heads,
            "num_key_value_heads": CONFIG.kv_heads,
            "head_dim": CONFIG.local_head_dim,
            "global_head_dim": CONFIG.head_dim,
            "hidden_size_per_layer_input": CONFIG.layer_embedding,
            "vocab_size_per_layer_input": vocab_size,
            "max_position_embeddings": CONFIG.max_context,
            "vocab_size": vocab_size,
            "rms_norm_eps": CONFIG.norm_eps,
            "sliding_window": 32,
            "num_kv_shared_layers": 0,
            "layer_types": ["sliding_attention", "full_attention"],
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
                "full_attention": {
                    "rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6,
                },
            },
        },
        "vision_config": {
            "model_type": "gemma4_vision",
            "hidden_size": CONFIG.tower_hidden,
            "intermediate_size": CONFIG.tower_ffn,
            "num_hidden_layers": CONFIG.tower_layers,
            "num_attention_heads": CONFIG.tower_heads,
            "num_key_value_heads": CONFIG.tower_heads,
            "head_dim": CONFIG.tower_head_dim,
            "patch_size": PATCH,
            "pooling_kernel_size": MERGED,
            "position_embedding_size": CONFIG.table_side,
            "use_clipped_linears": True,
        },
    }  # fmt: skip


# The settings of the published models, for smaller images.
PROCESSOR: dict[str, Any] = {
    "do_convert_rgb": True,
    "do_normalize": False,
    "do_rescale": True,
    "do_resize": True,
    "image_mean": [0.0, 0.0, 0.0],
    "image_processor_type": "Gemma4ImageProcessor",
    "image_seq_length": ROWS,
    "image_std": [1.0, 1.0, 1.0],
    "max_soft_tokens": ROWS,
    "patch_size": PATCH,
    "pooling_kernel_size": MERGED,
    "resample": 3,
    "rescale_factor": 0.00392156862745098,
}
