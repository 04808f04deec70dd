"""Sounds, and what the original code computes with the models that hear with Whisper's encoder.

python -m tests.models.families.whisper_sounds
"""

from __future__ import annotations

import functools
import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tests.models.families.cases import CASES
from tests.models.families.image_cases import VOXTRAL
from tests.models.families.media_recording import best_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

FILE = Path(__file__).parents[2] / "golden" / "whisper_sounds.npz"
ANSWER = 8
SOUND: int = VOXTRAL["audio_token_id"]
RATE = 16_000
VOXTRAL_CASE, ULTRAVOX_CASE, QWEN_CASE = "voxtral-ministral", "ultravox-llama", "qwen2audio-qwen2"
OMNI_CASE = "qwen25omni-thinker"
WINDOW = 2 * RATE  # samples
# Samples of each sound. Only Qwen2-Audio reads none that is longer than a window.
SAMPLES: Mapping[str, Sequence[int]] = {
    VOXTRAL_CASE: (2 * WINDOW + 500, 300, WINDOW),
    ULTRAVOX_CASE: (WINDOW + 7_001, 300, 2 * WINDOW, 9_700),
    QWEN_CASE: (WINDOW, 5_000, WINDOW - 319, WINDOW - 160, 9_300, 321, 961),
    # The second window of the third sound is too short for a row.
    OMNI_CASE: (2 * WINDOW + 7_001, 321, WINDOW + 320, WINDOW, 9_300),
}
# As transformers writes it.
EXTRACTOR: Mapping[str, Any] = {
    "chunk_length": 2, "dither": 0.0, "feature_extractor_type": "WhisperFeatureExtractor",
    "feature_size": 16, "hop_length": 160, "n_fft": 400, "n_samples": WINDOW, "nb_max_frames": 200,
    "padding_side": "right", "padding_value": 0.0, "return_attention_mask": False,
    "sampling_rate": RATE,
}  # fmt: skip
# Where a sound is padded to more than a window.
_LONGER: Mapping[str, Mapping[str, Any]] = {
    OMNI_CASE: {**EXTRACTOR, "chunk_length": 6, "n_samples": 3 * WINDOW, "nb_max_frames": 600},
}


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


@dataclass(frozen=True, kw_only=True)
class Question:
    """Sounds in a prompt.

    prompt     the ids, by the rows of each sound, with `token` for each row
    extractor  settings of the WhisperFeatureExtractor
    generated  the token that each step generates; None: the most likely one
    """

    sounds: Sequence[NDArray[np.float32]]
    prompt: Callable[[Sequence[int]], Sequence[int]]
    token: int = SOUND
    extractor: Mapping[str, Any] = field(default_factory=lambda: EXTRACTOR)
    generated: int | None = None

    def extracted(self, sounds: Sequence[NDArray[np.float32]], **options: Any) -> Any:
        """What the extractor makes of sounds."""
        extractor = self.loaded
        return extractor([*sounds], sampling_rate=RATE, return_tensors="pt", **options)

    @property
    def loaded(self) -> Any:
        """The extractor."""
        import transformers

        return transformers.WhisperFeatureExtractor.from_dict(dict(self.extractor))


def computed(name: str, folder: Path, question: Question | None = None) -> Heard:
    """What the model in a folder, of the architecture of a case, computes."""
    import torch

    if question is None:
        extractor = _LONGER.get(name, EXTRACTOR)
        question = Question(sounds=sounds_of(name), prompt=prompt, extractor=extractor)
    with torch.no_grad():
        return _COMPUTED[name](question, folder)


def _by_voxtral(question: Question, folder: Path) -> Heard:
    import torch
    import transformers

    processor: Any = SimpleNamespace(feature_extractor=question.loaded)
    features = [
        transformers.VoxtralProcessor._retrieve_input_features(
            processor, [sound], question.extractor["nb_max_frames"], sampling_rate=RATE,
            padding=True, truncation=False, pad_to_multiple_of=question.extractor["n_samples"],
            return_tensors="pt",
        )
        for sound in question.sounds
    ]  # fmt: skip
    joined = torch.cat(features)
    rows = joined.shape[2] // 8  # of a window: four states, of two frames each
    ids = question.prompt([rows * len(each) for each in features])
    flat = joined.transpose(1, 2).reshape(-1, joined.shape[1])
    return _asked(question, folder, ids, flat, {"input_features": joined})


def _by_qwen(question: Question, folder: Path, window: int = WINDOW) -> Heard:
    """Of windows of so many frames, each with two of the next one behind it."""
    import torch

    read = question.extracted(question.sounds, padding="max_length", return_attention_mask=True)
    features, mask = read["input_features"], read["attention_mask"]
    counts = mask.sum(-1).tolist()
    ids = question.prompt([(((count - 1) // 2 + 1) - 2) // 2 + 1 for count in counts])
    behind = torch.nn.functional.pad(features, (0, 2)).transpose(1, 2)
    flat = torch.cat(
        [
            x[start : min(start + window, count) + 2]
            for x, count in zip(behind, counts, strict=True)
            for start in range(0, count - 2, window)
        ]
    )
    read = {"input_features": features, "feature_attention_mask": mask}
    return _asked(question, folder, ids, flat, read)


def _asked(
    question: Question, folder: Path, ids: Sequence[int], features: Any, read: Mapping[str, Any]
) -> Heard:
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
    rows = embedded[0][tokens[0] == question.token]
    answer = best_tokens(model, inputs, ANSWER, generated=question.generated)
    return Heard(features.numpy(), rows.numpy(), logits.numpy(), answer)


def _by_ultravox(question: Question, folder: Path) -> Heard:
    import torch
    from safetensors.torch import load_file

    from tests.models.families.ultravox_torch import Ultravox

    described = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    model = Ultravox(described, load_file(folder / "model.safetensors"))
    windows, rows = [], []
    for sound in question.sounds:
        padded = np.pad(sound, (0, max(0, 320 - len(sound))))
        read = question.extracted(
            [padded], padding="longest", pad_to_multiple_of=160, truncation=False
        )
        parts = read["input_features"][0].split(question.extractor["nb_max_frames"], dim=1)
        windows += [part.T for part in parts]
        rows.append(torch.cat([model.rows(part) for part in parts]))
    ids = torch.tensor([[*question.prompt([len(each) for each in rows])]])
    embedded = model.text.get_input_embeddings()(ids)
    embedded[ids == question.token] = torch.cat(rows)
    logits = model.text(inputs_embeds=embedded).logits[0, -1]
    inputs = {"inputs_embeds": embedded, "attention_mask": torch.ones(embedded.shape[:2])}
    answer = best_tokens(model.text, inputs, ANSWER, generated=question.generated)
    return Heard(torch.cat(windows).numpy(), torch.cat(rows).numpy(), logits.numpy(), answer)


_COMPUTED: Mapping[str, Callable[[Question, Path], Heard]] = {
    VOXTRAL_CASE: _by_voxtral,
    ULTRAVOX_CASE: _by_ultravox,
    QWEN_CASE: _by_qwen,
    OMNI_CASE: functools.partial(_by_qwen, window=200),
}


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
