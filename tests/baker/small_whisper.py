"""A Whisper of two layers with random weights and a token for each byte. Its windows have a second.

The weights make texts of several segments from noise.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

if TYPE_CHECKING:
    from numpy.typing import NDArray

LANGUAGES = ("en", "de", "fr")
SPECIAL = (
    "<|endoftext|>", "<|startoftranscript|>", *(f"<|{code}|>" for code in LANGUAGES),
    "<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>", "<|nospeech|>",
    "<|notimestamps|>",
)  # fmt: skip
IDS = {name: 256 + number for number, name in enumerate(SPECIAL)}
STATES, CONTEXT, HIDDEN, FFN, LAYERS, MELS = 50, 128, 128, 192, 2, 80
VOCABULARY = 256 + len(SPECIAL) + STATES + 1
RATE = 16_000
# What record_whisper.py recorded.
GOLDEN = Path(__file__).parents[1] / "golden" / "whisper.npz"
GOLDEN_SECONDS = 4
# What record_word_times.py recorded.
WORD_TIMES = GOLDEN.with_name("word_times.npz")


def small_whisper(folder: Path) -> Path:
    """Write a Hugging Face folder; returns it."""
    folder.mkdir(parents=True)
    save_file(_weights(), folder / "model.safetensors")
    _write(folder / "config.json", config())
    _write(folder / "generation_config.json", generation())
    tokenizer().save(str(folder / "tokenizer.json"))
    return folder


def noise(seconds: float, seed: int = 0) -> NDArray[np.float32]:
    """Sound f32 at RATE: noise whose loudness changes."""
    rng = np.random.default_rng(seed)
    count = round(seconds * RATE)
    loudness = 0.1 + 0.09 * np.sin(np.arange(count) * 9.0 / RATE)
    return np.asarray(rng.standard_normal(count) * loudness, np.float32)


def tokenizer() -> Tokenizer:
    """A token for each byte, and the special ones; times are in no tokenizer.json."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: id_ for id_, character in enumerate(alphabet)} | IDS
    result = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    result.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    result.decoder = decoders.ByteLevel()
    result.add_special_tokens(list(SPECIAL))
    return result


def config() -> dict[str, Any]:
    """config.json."""
    return {
        "model_type": "whisper",
        "d_model": HIDDEN,
        "encoder_layers": LAYERS,
        "decoder_layers": LAYERS,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": FFN,
        "decoder_ffn_dim": FFN,
        "num_mel_bins": MELS,
        "max_source_positions": STATES,
        "max_target_positions": CONTEXT,
        "vocab_size": VOCABULARY,
        "bos_token_id": IDS["<|endoftext|>"],
        "eos_token_id": IDS["<|endoftext|>"],
        "pad_token_id": IDS["<|endoftext|>"],
        "decoder_start_token_id": IDS["<|startoftranscript|>"],
    }


def generation() -> dict[str, Any]:
    """generation_config.json."""
    end, start = IDS["<|endoftext|>"], IDS["<|startoftranscript|>"]
    return {
        "begin_suppress_tokens": [32, end],
        "bos_token_id": end,
        "eos_token_id": end,
        "pad_token_id": end,
        "decoder_start_token_id": start,
        "is_multilingual": True,
        "lang_to_id": {f"<|{code}|>": IDS[f"<|{code}|>"] for code in LANGUAGES},
        "task_to_id": {task: IDS[f"<|{task}|>"] for task in ("transcribe", "translate")},
        "max_initial_timestamp_index": 50,
        "max_length": CONTEXT,
        "no_timestamps_token_id": IDS["<|notimestamps|>"],
        "prev_sot_token_id": IDS["<|startofprev|>"],
        # Special tokens are in the published lists, too.
        "suppress_tokens": [1, 2, 7, *range(start, end + len(SPECIAL))],
    }


def _weights() -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(8)

    def matrix(*shape: int) -> NDArray[np.float32]:
        return np.asarray(rng.standard_normal(shape) * 0.15, np.float32)

    tensors: dict[str, NDArray[np.float32]] = {
        "model.encoder.conv1.weight": matrix(HIDDEN, MELS, 3),
        "model.encoder.conv2.weight": matrix(HIDDEN, HIDDEN, 3),
        "model.encoder.embed_positions.weight": matrix(STATES, HIDDEN),
        "model.decoder.embed_positions.weight": 20 * matrix(CONTEXT, HIDDEN),
        "model.decoder.embed_tokens.weight": 2 * matrix(VOCABULARY, HIDDEN),
    }
    # Times and the end are as probable as texts.
    tensors["model.decoder.embed_tokens.weight"][IDS["<|endoftext|>"]] *= 1.6
    tensors["model.decoder.embed_tokens.weight"][256 + len(SPECIAL) :] *= 1.2
    for name in ("conv1", "conv2"):
        tensors[f"model.encoder.{name}.bias"] = matrix(HIDDEN)
    for side in ("encoder", "decoder"):
        _norm(tensors, f"model.{side}.layer_norm", matrix)
        for layer in range(LAYERS):
            name = f"model.{side}.layers.{layer}"
            for attention in ("self_attn", "encoder_attn")[: 1 if side == "encoder" else 2]:
                for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    tensors[f"{name}.{attention}.{part}.weight"] = matrix(HIDDEN, HIDDEN)
                    if part != "k_proj":
                        tensors[f"{name}.{attention}.{part}.bias"] = matrix(HIDDEN)
                _norm(tensors, f"{name}.{attention}_layer_norm", matrix)
            for part, shape in (("fc1", (FFN, HIDDEN)), ("fc2", (HIDDEN, FFN))):
                tensors[f"{name}.{part}.weight"] = matrix(*shape)
                tensors[f"{name}.{part}.bias"] = matrix(shape[0])
            _norm(tensors, f"{name}.final_layer_norm", matrix)
    return tensors


def _norm(tensors: dict[str, NDArray[np.float32]], name: str, matrix: Any) -> None:
    tensors[f"{name}.weight"] = 1 + matrix(HIDDEN)
    tensors[f"{name}.bias"] = matrix(HIDDEN)


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value))
