"""A SmolVLM of two layers with random weights and a token for each byte."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models

from examples.train_tiny_gemma import initial
from hearthd.models.families.smolvlm import ARCHITECTURE, Config
from tests.models.text_sizes import text_sizes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# The special tokens of SmolVLM after the bytes; an image has at most 2 x 2 squares.
SPECIAL = (
    "<|im_start|>", "<end_of_utterance>", "<image>", "<fake_token_around_image>", "<global-img>",
    *(f"<row_{row}_col_{column}>" for row in (1, 2) for column in (1, 2)),
)  # fmt: skip
IMAGE = 256 + SPECIAL.index("<image>")
SIDE, LONGEST_EDGE, ROWS = 32, 64, 4
CONFIG = Config(
    layers=2, hidden=64, ffn=128, heads=4, kv_heads=2, head_dim=64, max_context=2048,
    vocab_size=256 + len(SPECIAL), norm_eps=1e-5, rope_base=1e4, tied=False, image_size=SIDE,
    patch_size=8, joined_patches=2, tower_layers=2, tower_hidden=64, tower_ffn=96, tower_heads=2,
    tower_norm_eps=1e-6,
)  # fmt: skip
# The template of the published models: it takes lists of parts only.
TEMPLATE = (
    "<|im_start|>{% for message in messages %}{{message['role'] | capitalize}}"
    "{% if message['content'][0]['type'] == 'image' %}{{':'}}{% else %}{{': '}}{% endif %}"
    "{% for line in message['content'] %}{% if line['type'] == 'text' %}{{line['text']}}"
    "{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}"
    "<end_of_utterance>\n{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)


def small_smolvlm(folder: Path) -> Path:
    """Write a Hugging Face folder; returns it."""
    weights = initial(ARCHITECTURE.model(CONFIG).parameters(), seed=0)
    patches = "tower.patch_embedding.weight"  # a convolution in files
    weights[patches] = weights[patches].reshape(-1, 3, CONFIG.patch_size, CONFIG.patch_size)
    names = {name: ARCHITECTURE.tensors.find(CONFIG, name, (), gguf=False) for name in weights}
    tensors = {names[name].name: array for name, array in weights.items()}
    write_model(folder, tensors, _config(), _processor(), TEMPLATE, SPECIAL)
    return folder


def write_model(
    folder: Path,
    tensors: dict[str, np.ndarray[Any, Any]],
    config: dict[str, Any],
    processor: dict[str, Any],
    template: str,
    special: Sequence[str],
) -> None:
    """Write the files of a Hugging Face folder."""
    folder.mkdir(parents=True)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    (folder / "chat_template.jinja").write_text(template)
    tokenizer(special).save(str(folder / "tokenizer.json"))


def tokenizer(special: Sequence[str]) -> Tokenizer:
    """A token for each byte, and the special ones."""
    vocabulary = {f"<0x{byte:02X}>": byte for byte in range(256)}
    vocabulary |= {name: 256 + number for number, name in enumerate(special)}
    result = Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True))
    result.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    result.add_special_tokens([*special])
    return result


def pixels(width: int, height: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """A picture u8 (height, width, 3): smooth colors, and some noise."""
    rng = np.random.default_rng([seed, width, height])
    y, x = np.mgrid[:height, :width]
    waves = [np.sin(x / (4 + k)) * np.cos(y / (3 + k)) for k in range(3)]
    noise = rng.integers(0, 60, (height, width, 3))
    return np.asarray(np.clip(120 + 90 * np.stack(waves, 2) + noise, 0, 255), np.uint8)


def _config() -> dict[str, Any]:
    return {
        "model_type": "idefics3",
        "scale_factor": CONFIG.joined_patches,
        "image_token_id": IMAGE,
        "tie_word_embeddings": False,
        "eos_token_id": 256 + SPECIAL.index("<end_of_utterance>"),
        "text_config": {
            "model_type": "llama",
            **text_sizes(CONFIG),
            "rms_norm_eps": CONFIG.norm_eps,
            "rope_theta": CONFIG.rope_base,
        },
        "vision_config": {
            "model_type": "idefics3_vision",
            "image_size": CONFIG.image_size,
            "patch_size": CONFIG.patch_size,
            "num_hidden_layers": CONFIG.tower_layers,
            "hidden_size": CONFIG.tower_hidden,
            "intermediate_size": CONFIG.tower_ffn,
            "num_attention_heads": CONFIG.tower_heads,
        },
    }


def _processor() -> dict[str, Any]:
    return {
        "do_convert_rgb": True,
        "do_image_splitting": True,
        "do_normalize": True,
        "do_pad": True,
        "do_rescale": True,
        "do_resize": True,
        "image_mean": [0.5, 0.5, 0.5],
        "image_processor_type": "Idefics3ImageProcessor",
        "image_std": [0.5, 0.5, 0.5],
        "max_image_size": {"longest_edge": SIDE},
        "processor_class": "Idefics3Processor",
        "resample": 1,
        "rescale_factor": 0.00392156862745098,
        "size": {"longest_edge": LONGEST_EDGE},
    }
