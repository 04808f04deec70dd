"""What tests/e2e/test_sounds.py asks small models that hear, and what their original code answers.

python -m tests.e2e.sound_questions
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.baker.small_gemma4_sound import samples
from tests.baker.small_hearing import SPECIAL, config_of, extractor, small_hearing
from tests.baker.small_smolvlm import tokenizer
from tests.models.families import whisper_sounds
from tests.models.families.whisper_sounds import QWEN_CASE, ULTRAVOX_CASE, VOXTRAL_CASE, Question

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FILE = Path(__file__).parents[1] / "golden" / "sound_answer.json"
# Texts, and the samples of sounds. A window of the models has 32,000 samples.
QUESTIONS: Mapping[str, Sequence[str | int]] = {
    "voxtral": (70_001, "What is this?", 5_000, "Why?"),
    "ultravox": ("Who?", 64_000, "What is this, and how is it like the next one?", 500, 9_601),
    "qwen2audio": (32_000, "What is this, and how is it like the next one?", 9_999, "Why?", 321),
}
_CASES = {"voxtral": VOXTRAL_CASE, "ultravox": ULTRAVOX_CASE, "qwen2audio": QWEN_CASE}
# What the chat template writes before and after a message, and around a row for each token.
_AROUND = {
    "voxtral": ("[INST]", "[/INST]"),
    "ultravox": ("<|user|>", "</s><|assistant|>"),
    "qwen2audio": ("<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"),
}
_SOUNDS = {
    "voxtral": ("[BEGIN_AUDIO]", "[AUDIO]", ""),
    "ultravox": ("", "<|reserved_special_token_0|>", ""),
    "qwen2audio": ("<|audio_bos|>", "<|AUDIO|>", "<|audio_eos|>\n"),
}


def prompt(name: str, rows: Sequence[int]) -> list[int]:
    """The ids of a question whose sounds have these rows."""
    (start, end), (before, row, after), counts = _AROUND[name], _SOUNDS[name], iter(rows)
    text = start
    for item in QUESTIONS[name]:
        text += item if isinstance(item, str) else before + row * next(counts) + after
    ids: list[int] = tokenizer(SPECIAL[name]).encode(text + end).ids
    return ids


def answers() -> Mapping[str, Mapping[str, Any]]:
    """By model: the tokens of the prompt and of the answer.

    `after_placeholders` are the most likely tokens where each step generates the token that stands
    for sound in a prompt.
    """
    recorded: dict[str, dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
    return recorded


def main() -> None:
    """Record the answers."""
    recorded = {}
    for name, question in QUESTIONS.items():
        lengths: list[int] = []

        def ids_of(rows: Sequence[int], name: str = name, lengths: list[int] = lengths) -> Any:
            lengths.append(len(prompt(name, rows)))
            return prompt(name, rows)

        asked = Question(
            sounds=[samples(item, seed=0) for item in question if isinstance(item, int)],
            prompt=ids_of,
            token=256 + SPECIAL[name].index(_SOUNDS[name][1]),
            extractor=extractor(config_of(name)),
        )
        with tempfile.TemporaryDirectory() as parent:
            folder = small_hearing(Path(parent, name), name)
            forced = replace(asked, generated=asked.token)
            answer, after = (
                whisper_sounds.computed(_CASES[name], folder, each).answer.tolist()
                for each in (asked, forced)
            )
        recorded[name] = {
            "prompt_tokens": lengths[0], "answer": answer, "after_placeholders": after
        }  # fmt: skip
    FILE.write_text(json.dumps(recorded) + "\n")


if __name__ == "__main__":
    main()
