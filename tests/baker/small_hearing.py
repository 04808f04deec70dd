"""Models of two layers that hear with Whisper's encoder, with random weights and a byte a token.

A window has two seconds: 100 states, or as many as are given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hearthd.models.catalog import ARCHITECTURES
from tests.baker.small_smolvlm import write_model
from tests.baker.small_tensors import small_tensors
from tests.models.text_sizes import text_sizes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

STATES, MELS, RATE = 100, 16, 16_000  # of a window; bands
JOINED = 4  # states of a row of Voxtral and Ultravox
SPECIAL: Mapping[str, Sequence[str]] = {
    "voxtral": ("[INST]", "[/INST]", "[AUDIO]", "[BEGIN_AUDIO]", "</s>"),
    "ultravox": ("<|user|>", "<|assistant|>", "<|reserved_special_token_0|>", "</s>"),
    "qwen2audio": ("<|im_start|>", "<|im_end|>", "<|audio_bos|>", "<|AUDIO|>", "<|audio_eos|>"),
}
_ENDS = {"voxtral": "</s>", "ultravox": "</s>", "qwen2audio": "<|im_end|>"}
# The templates of the first two write a text only, as in published GGUF files.
TEMPLATES: Mapping[str, str] = {
    "voxtral": (
        "{% for m in messages %}{% if m['role'] == 'user' %}[INST]{{ m['content'] }}[/INST]"
        "{% else %}{{ m['content'] }}</s>{% endif %}{% endfor %}"
    ),
    "ultravox": (
        "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] | trim }}</s>{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    ),
    "qwen2audio": (
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% if m['content'] is string %}"
        "{{ m['content'] }}{% else %}{% for item in m['content'] %}"
        "{% if item['type'] == 'audio' %}<|audio_bos|><|AUDIO|><|audio_eos|>\n"
        "{% else %}{{ item['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    ),
}
_EXTRA: Mapping[str, Mapping[str, Any]] = {
    "voxtral": {"joined_states": JOINED},
    "ultravox": {"joined_states": JOINED, "projector_width": 48},
    "qwen2audio": {"attention_bias": True},
}


def config_of(name: str, states: int = STATES) -> Any:
    """The configuration of a model of an architecture."""
    return ARCHITECTURES[name].config(
        layers=2, hidden=64, ffn=96, heads=4, kv_heads=2, head_dim=16, max_context=4096,
        vocab_size=256 + len(SPECIAL[name]), norm_eps=1e-5, rope_base=1e4, tied=False,
        sound_mels=MELS, sound_states=states, sound_layers=3, sound_hidden=32,
        sound_ffn=32 * JOINED, sound_heads=2, sound_norm_eps=1e-5, **_EXTRA[name],
    )  # fmt: skip


def small_hearing(folder: Path, name: str, states: int = STATES) -> Path:
    """Write a Hugging Face folder of a model of an architecture; returns it."""
    architecture, config = ARCHITECTURES[name], config_of(name, states)
    tensors = small_tensors(architecture, config, name=_published, shape=_shape)
    write_model(
        folder, tensors, _config(name, config), extractor(config), TEMPLATES[name], SPECIAL[name]
    )
    return folder


def _published(name: str) -> str:
    return f"language_model.{name}" if name == "lm_head.weight" else name


def _shape(parameter: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a tensor in files, where convolutions have an axis of taps."""
    if parameter.endswith(("conv1.weight", "conv2.weight")):
        return (shape[0], shape[1] // 3, 3)
    return shape


def extractor(config: Any) -> dict[str, Any]:
    """preprocessor_config.json."""
    frames = 2 * config.sound_states
    return {
        "chunk_length": frames // 100, "dither": 0.0,
        "feature_extractor_type": "WhisperFeatureExtractor",
        "feature_size": MELS, "hop_length": 160, "n_fft": 400, "n_samples": 160 * frames,
        "nb_max_frames": frames, "padding_side": "right", "padding_value": 0.0,
        "return_attention_mask": False, "sampling_rate": RATE,
    }  # fmt: skip


def _config(name: str, config: Any) -> dict[str, Any]:
    text = {
        **text_sizes(config),
        "rms_norm_eps": config.norm_eps,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_base},
        "tie_word_embeddings": False,
        "eos_token_id": 256 + SPECIAL[name].index(_ENDS[name]),
    }
    tower = {
        "num_mel_bins": MELS, "d_model": config.sound_hidden, "encoder_ffn_dim": config.sound_ffn,
        "encoder_layers": config.sound_layers, "encoder_attention_heads": config.sound_heads,
        "max_source_positions": config.sound_states,
    }  # fmt: skip
    token = 256 + SPECIAL[name].index("<|AUDIO|>" if name == "qwen2audio" else SPECIAL[name][2])
    described: Mapping[str, Any] = {
        "voxtral": {
            "model_type": "voxtral",
            "audio_token_id": token,
            "text_config": {"model_type": "llama", **text},
            "audio_config": {"model_type": "voxtral_encoder", **_later(tower)},
        },
        "ultravox": {
            "model_type": "ultravox",
            "stack_factor": JOINED,
            "projector_ln_mid": True,
            "hidden_size": 96,
            "text_config": {"model_type": "llama", **text},
            "audio_config": {"model_type": "whisper", **tower},
        },
        "qwen2audio": {
            "model_type": "qwen2_audio",
            "audio_token_index": token,
            "text_config": {"model_type": "qwen2", **text},
            "audio_config": {"model_type": "qwen2_audio_encoder", **tower},
        },
    }
    return dict(described[name])


def _later(tower: Mapping[str, Any]) -> dict[str, Any]:
    """The same sizes by the names of later models."""
    names = {
        "d_model": "hidden_size", "encoder_ffn_dim": "intermediate_size",
        "encoder_layers": "num_hidden_layers", "encoder_attention_heads": "num_attention_heads",
    }  # fmt: skip
    return {names.get(key, key): value for key, value in tower.items()}
