"""Record what transformers computes: python -m tests.models.families.record_families"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np

from hearthd.baker.weights.safetensors import SafetensorsSource
from tests.models.families import oracle
from tests.models.families.cases import CASES, TOKENS, Case
from tests.models.families.encoders import encoder_oracle
from tests.models.families.encoders.encoder_cases import ENCODER_CASES, write_recordings
from tests.models.families.family_recording import EXACT, ROWS, Recording, write


def record(name: str, case: Case, folder: Path) -> Recording:
    """What is recorded of the case with this name in CASES."""
    oracle.save_pretrained(case, folder)
    logits, source = oracle.logits(folder, TOKENS), SafetensorsSource(folder)
    exact = oracle.exact_logits(folder, TOKENS)[ROWS] if name in EXACT else None
    return Recording(
        config=json.loads((folder / "config.json").read_text(encoding="utf-8")),
        shapes={name: source.shape(name) for name in source.names()},
        greedy=logits.argmax(axis=1).tolist(),
        logits=logits[ROWS],
        exact=None if exact is None else exact.astype(np.float32),
    )


def main() -> None:
    """Record every case."""
    with tempfile.TemporaryDirectory() as folder:
        recordings = {}
        for name, case in CASES.items():
            path = Path(folder, name)
            path.mkdir()
            recordings[name] = record(name, case, path)
        write(recordings)
        encoders = {}
        for name, encoder in ENCODER_CASES.items():
            path = Path(folder, name)
            path.mkdir()
            encoders[name] = encoder_oracle.record(encoder, path)
        write_recordings(encoders)


if __name__ == "__main__":
    main()
