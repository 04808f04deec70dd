"""Record what transformers computes.

    python -m tests.models.families.record_families
    python -m tests.models.families.record_families olmo2-olmo2 olmo2-linear nomic-bert

Records every case, encoders too; or the named cases, beside those that are recorded.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np

from hearthd.baker.weights.safetensors import SafetensorsSource
from tests.models.families import oracle
from tests.models.families.cases import CASES, TOKENS, Case
from tests.models.families.encoders import encoder_oracle
from tests.models.families.encoders.encoder_cases import (
    ENCODER_CASES,
    recorded_encoder,
    write_recordings,
)
from tests.models.families.family_recording import (
    EXACT,
    ROWS,
    Recording,
    publish,
    recorded,
    recorded_names,
    write,
)


def record(name: str, case: Case, folder: Path) -> Recording:
    """What is recorded of the case with this name in CASES."""
    oracle.save_pretrained(case, folder)
    logits, source = oracle.logits(folder, TOKENS), SafetensorsSource(folder)
    exact = oracle.exact_logits(folder, TOKENS)[ROWS] if name in EXACT else None
    shapes = {name: source.shape(name) for name in source.names()}
    publish(case, folder)
    return Recording(
        config=json.loads((folder / "config.json").read_text(encoding="utf-8")),
        shapes=shapes,
        greedy=logits.argmax(axis=1).tolist(),
        logits=logits[ROWS],
        exact=None if exact is None else exact.astype(np.float32),
    )


def main() -> None:
    """Record the cases that are named, or every case."""
    parser = argparse.ArgumentParser(prog="python -m tests.models.families.record_families")
    parser.add_argument("names", nargs="*", metavar="CASE", help="by default all, encoders too")
    names = parser.parse_args().names or [*CASES, *ENCODER_CASES]
    with tempfile.TemporaryDirectory() as folder:
        decoders, encoders = {}, {}
        for name in names:
            path = Path(folder, name)
            path.mkdir()
            if name in ENCODER_CASES:
                encoders[name] = encoder_oracle.record(ENCODER_CASES[name], path)
            else:
                decoders[name] = record(name, CASES[name], path)
    if decoders:
        kept = {name: recorded(name) for name in recorded_names() if name not in decoders}
        every = kept | decoders
        write({name: every[name] for name in CASES})
    if encoders:
        write_recordings(
            {name: encoders.get(name) or recorded_encoder(name) for name in ENCODER_CASES}
        )


if __name__ == "__main__":
    main()
