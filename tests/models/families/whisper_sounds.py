"""Sounds, and what the original code computes with the models that hear with Whisper's encoder.

python -m tests.models.families.whisper_sounds
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tests.models.families.cases import CASES
from tests.models.families.image_cases import VOXTRAL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

FILE = Path(__file__).parents[2] / "golden" / "whisper_sounds.npz"
ANSWER = 8
SOUND: int = VOXTRAL["audio_token_id"]
RATE = 16_000
VOXTRAL_CASE, ULTRAVOX_CASE, QWEN_CASE = "voxtral-ministral", "ultravox-llama", "qwen2audio-qwen2"
WINDOW = 2 * RATE  # samples
# Samples of each sound. Only Qwen2-Audio reads none that is longer than a window.
SAMPLES: Mapping[str, Sequence[int]] = {
    VOXTRAL_CASE: (2 * WINDOW + 500, 300, WINDOW),
    ULTRAVOX_CASE: (WINDOW + 7_001, 300, 2 * WINDOW, 9_600),
    QWEN_CASE: (WINDOW, 5_000, WINDOW - 319, WINDOW - 160, 9_300, 321, 961),
}
# As transformers writes it.
EXTRACTOR: Mapping[str, Any] = {
    "chunk_length": 2, "dither": 0.0, "feature_extractor_type": "WhisperFeatureExtractor",
    "feature_size": 16, "hop_length": 160, "n_fft": 400, "n_samples": WINDOW, "nb_max_frames": 200,
    "padding_side": "right", "padding_value": 0.0, "return_attention_mask": False,
    "sampling_rate": RATE,
}  # fmt: skip


class Heard(NamedTuple):
    """What the original code computes.

    features  of all windows, one after the other: f32 (T, mels)
    rows      of embeddings, of all sounds
    logits    after the prompt: f32 (V,)
    answer    the greedy continuation: i32 (ANSWER,)
    """

    features: NDArray[np.float32]
    rows: NDArray[np.float32]
    logits: NDArray[np.float32]
    answer: NDArray[np.int32]


def sounds_of(name: str) -> list[NDArray[np.float32]]:
    """The sounds of a case: noise around a tone, which grows louder; the second one is quiet."""
    rng, found = np.random.default_rng(5), []
    for number, count in enumerate(SAMPLES[name]):
        seconds = np.arange(count) / RATE
        sound = np.sin(2 * np.pi * 300 * (1 + number) * seconds) * (0.1 + seconds / 4)
        sound += 0.02 * rng.standard_normal(count)
        found.append((sound * (1e-4 if number == 1 else 1)).astype(np.float32))
    return found


def prompt(rows: Sequence[int]) -> tuple[int, ...]:
    """A prompt with sounds of so many rows: the first two side by side."""
    first, second, *others = ((SOUND,) * count for count in rows)
    middle = (token for sound in others for token in (7, *sound))
    return (5, *first, *second, *middle, 33, 80)


def recorded(name: str) -> Heard:
    """The recording of a case."""
    with np.load(FILE) as arrays:
        return Heard(*(arrays[f"{name}.{field}"] for field in Heard._fields))


def computed(name: str, folder: Path) -> Heard:
    """What the model in a folder computes."""
    import torch

    with torch.no_grad():
        return _COMPUTED[name](name, folder)


def _extracted(audio: Any, **options: Any) -> Any:
    """What WhisperFeatureExtractor makes of sounds."""
    import transformers

    extractor = transformers.WhisperFeatureExtractor.from_dict(dict(EXTRACTOR))
    return extractor(audio, sampling_rate=RATE, return_tensors="pt", **options)


def _by_voxtral(name: str, folder: Path) -> Heard:
    import torch
    import transformers

    extractor = transformers.WhisperFeatureExtractor.from_dict(dict(EXTRACTOR))
    processor: Any = SimpleNamespace(feature_extractor=extractor)
    features = [
        transformers.VoxtralProcessor._retrieve_input_features(
            processor, [sound], EXTRACTOR["nb_max_frames"], sampling_rate=RATE, padding=True,
            truncation=False, pad_to_multiple_of=WINDOW, return_tensors="pt",
        )
        for sound in sounds_of(name)
    ]  # fmt: skip
    ids = prompt([25 * len(each) for each in features])
    joined = torch.cat(features)
    flat = joined.transpose(1, 2).reshape(-1, joined.shape[1])
    return _asked(folder, ids, flat, {"input_features": joined})


def _by_qwen(name: str, folder: Path) -> Heard:
    import torch

    read = _extracted(sounds_of(name), padding="max_length", return_attention_mask=True)
    features, mask = read["input_features"], read["attention_mask"]
    counts = mask.sum(-1).tolist()
    ids = prompt([(((count - 1) // 2 + 1) - 2) // 2 + 1 for count in counts])
    behind = torch.nn.functional.pad(features, (0, 2)).transpose(1, 2)
    flat = torch.cat([x[: count + 2] for x, count in zip(behind, counts, strict=True)])
    return _asked(folder, ids, flat, {"input_features": features, "feature_attention_mask": mask})


def _asked(folder: Path, ids: Sequence[int], features: Any, read: Mapping[str, Any]) -> Heard:
    """What a model of transformers answers to ids and the sounds that it reads."""
    import torch

    from tests.models.families import oracle

    model, embedded = oracle.load(folder), []
    model.model.language_model.register_forward_pre_hook(
        lambda _, __, options: embedded.append(options["inputs_embeds"][0]), with_kwargs=True
    )
    tokens = torch.tensor([[*ids]])
    inputs = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), **read}
    logits = model(**inputs).logits[0, -1]
    rows = embedded[0][tokens[0] == SOUND]
    options = {"do_sample": False, "max_new_tokens": ANSWER, "eos_token_id": None}
    answer = model.generate(**inputs, **options)[0, len(ids) :]
    return Heard(features.numpy(), rows.numpy(), logits.numpy(), answer.numpy().astype(np.int32))


def _by_ultravox(name: str, folder: Path) -> Heard:
    import json

    import torch
    from safetensors.torch import load_file

    from tests.models.families.ultravox_torch import Ultravox

    described = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    model = Ultravox(described, load_file(folder / "model.safetensors"))
    windows, rows = [], []
    for sound in sounds_of(name):
        padded = np.pad(sound, (0, max(0, 320 - len(sound))))
        read = _extracted([padded], padding="longest", pad_to_multiple_of=160, truncation=False)
        parts = read["input_features"][0].split(EXTRACTOR["nb_max_frames"], dim=1)
        windows += [part.T for part in parts]
        rows.append(torch.cat([model.rows(part) for part in parts]))
    ids = prompt([len(each) for each in rows])
    embedded = model.text.get_input_embeddings()(torch.tensor([[*ids]]))
    embedded[0, torch.tensor(ids) == SOUND] = torch.cat(rows)
    logits = model.text(inputs_embeds=embedded).logits[0, -1]
    options = {"do_sample": False, "max_new_tokens": ANSWER, "eos_token_id": None}
    answer = model.text.generate(
        inputs_embeds=embedded, attention_mask=torch.ones(embedded.shape[:2]), **options
    )[0]
    return Heard(
        torch.cat(windows).numpy(),
        torch.cat(rows).numpy(),
        logits.numpy(),
        answer.numpy().astype(np.int32),
    )


_COMPUTED = {VOXTRAL_CASE: _by_voxtral, ULTRAVOX_CASE: _by_ultravox, QWEN_CASE: _by_qwen}


def main() -> None:
    """Record all cases."""
    from tests.models.families import oracle

    arrays: dict[str, Any] = {}
    for name in SAMPLES:
        with tempfile.TemporaryDirectory() as folder:
            oracle.save_pretrained(CASES[name], Path(folder))
            heard = computed(name, Path(folder))
        arrays |= {f"{name}.{field}": array for field, array in heard._asdict().items()}
    np.savez_compressed(FILE, **arrays)


if __name__ == "__main__":
    main()
