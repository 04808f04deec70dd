"""Compare what llama.cpp predicts with tiny models of families, from GGUF files in F32.

    python -m tests.golden.compare_llamacpp LLAMA_SERVER mellum-linear

LLAMA_SERVER is the program of llama.cpp, and the others are names of CASES. Prints for each the
largest difference of log-probabilities from those that NumPy computes with the same file.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from hearthd.baker.weights.open_weights import open_weights
from hearthd.models.catalog import ARCHITECTURES
from tests.golden.record_hybrids import recorded as predicted
from tests.models.families import ours
from tests.models.families.cases import CASES, random_tensors
from tests.models.families.family_recording import recorded
from tests.models.families.gguf_files import write_gguf
from tests.models.families.hybrid_models import READ_BY_LLAMACPP, TEXT
from tests.models.families.packed_tensors import packed_tensors

_SPECIAL = ["<eos>"]
_TOKENS = 256 + len(_SPECIAL)  # one for each byte


def write_model(name: str, folder: Path) -> Path:
    """Write the model of a case as a GGUF file whose tokens are bytes; returns its path."""
    architecture, recording = ARCHITECTURES[CASES[name].architecture], recorded(name)
    text = recording.config.get("text_config", recording.config)
    smaller = {**text, "vocab_size": _TOKENS}
    described = smaller
    if text is not recording.config:
        described = {**recording.config, "text_config": smaller}
    shapes = {
        tensor: (_TOKENS, *shape[1:]) if shape[0] == text["vocab_size"] else shape
        for tensor, shape in recording.shapes.items()
    }
    (folder / "config.json").write_text(json.dumps(described), encoding="utf-8")
    tensors = packed_tensors(random_tensors(shapes), described)
    save_file({**tensors}, folder / "model.safetensors")
    config = architecture.from_hugging_face(described)
    return write_gguf(folder, architecture.name, config, _SPECIAL)


def difference(server: str, name: str, folder: Path) -> float:
    """The largest difference of log-probabilities, of the tokens that llama.cpp finds likeliest."""
    file = write_model(name, folder)
    logits = ours.logits(open_weights(file), CASES[name].architecture, folder, TEXT)
    best = predicted(server, file)
    largest: float = max(
        abs(logprob - float(row[token] - np.logaddexp.reduce(row)))
        for row, tokens in zip(logits[[n - 1 for n in READ_BY_LLAMACPP]], best, strict=True)
        for token, logprob in tokens
    )
    return largest


def main(server: str, *names: str) -> None:
    """Print a line for each case."""
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            sys.stdout.write(f"{name}: {difference(server, name, Path(folder)):.1e}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
