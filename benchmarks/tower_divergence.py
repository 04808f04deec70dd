"""Measure how the precision of a tower changes answers about images and sounds.

    hearth bake smolvlm --weights SmolVLM-256M-Instruct/ --precision f32 --out exact
    hearth bake smolvlm --weights SmolVLM-256M-Instruct/ --out int8
    python -m benchmarks.tower_divergence exact int8 photo.jpeg chart.png

Both bundles are of the same weights. Their towers read each file, and the text model of the first
bundle reads the rows of both: so the layers of the text model add nothing. It answers with the
rows of the first bundle, greedily, and reads the same answer after the rows of the second one. The
result is the mean of KL(exact || other) over the tokens of the answers, in nats, the largest one,
and the largest difference of a row divided by the largest value.
"""

from __future__ import annotations

import argparse
import base64
import statistics
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.inputs import existing_bundle, existing_path
from hearthd.baker.compare.measurement.position_metrics import kl_divergence
from hearthd.baker.compare.sides.prediction import FullPrediction
from hearthd.runtime.open_bundle import open_bundle
from hearthd.server.engine.prompt import ImageRows, Prompt
from hearthd.server.images.media_reader import MediaReader
from hearthd.server.services.language_service import open_tokenizer
from hearthd.text.conversation import Media

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.bundle import LanguageManifest
    from hearthd.runtime.language_model import IreeRuntime

    Rows = Mapping[bytes, NDArray[np.float32]]

_QUESTION = "\nDescribe this in detail:"
_SOUNDS = (".wav", ".flac", ".ogg", ".mp3")


@dataclass(frozen=True)
class Divergence:
    """KL(exact || other) of each token of the answers, in nats.

    row_error  the largest difference of a row of embeddings, over the largest value of its image
    """

    by_token: tuple[float, ...]
    row_error: float

    @property
    def mean(self) -> float:
        """The mean over the tokens."""
        return statistics.fmean(self.by_token)


def prompt_of(bundle: Path, manifest: LanguageManifest, file: Path) -> Prompt:
    """A prompt with an image or a sound, and a question; raises InvalidRequest for another file."""
    tokenizer = open_tokenizer(bundle, manifest)
    reader = MediaReader(manifest.image_settings, manifest.sound, tokenizer)
    kind: Any = "audio" if file.suffix in _SOUNDS else "image"
    url = f"data:{kind}/any;base64,{base64.b64encode(file.read_bytes()).decode()}"
    read = reader.read(Media(kind=kind, field=str(file), url=url))
    ids = tokenizer.encode(read.text + _QUESTION)
    squares = [
        ImageRows(
            media=square.media, digest=square.digest, count=square.rows,
            both_ways=square.both_ways, grid=square.grid,
        )
        for square in read.squares
    ]  # fmt: skip
    return Prompt.of_ids(reader.positions(ids, read.squares), squares)


def rows_of(runtime: IreeRuntime, prompt: Prompt) -> Rows:
    """The rows that the tower of a bundle computes for the images of a prompt, by digest."""
    return {
        image.digest: next(rows for rows in runtime.read_media(image.media) if rows is not None)
        for image in prompt.images
    }


def answered(
    runtime: IreeRuntime, prompt: Prompt, rows: Rows, tokens: int, answer: tuple[int, ...] = ()
) -> list[FullPrediction]:
    """The predictions of an answer after a prompt: `answer`, or the greedy answer if empty."""
    runtime.set_rotary_positions(0, prompt.rotary_positions)
    start = 0
    for chunk in prompt[: len(prompt) - 1].chunks(runtime.chunk):
        read = chunk.rows(rows)
        runtime.prefill(0, chunk.tokens, start, read, causal=not chunk.both_ways)
        start += len(chunk)
    token, predictions = prompt.tokens[-1], []
    for position in range(tokens):
        (logits,) = runtime.decode([0], [token], [start + position], [True])
        predictions.append(FullPrediction(logits))
        token = answer[position] if answer else predictions[-1].greedy
    return predictions


def measured(exact_bundle: Path, bundle: Path, files: Sequence[Path], tokens: int) -> Divergence:
    """How far a bundle's tower is from the exact bundle's, over answers about some files."""
    manifest, exact = open_bundle(exact_bundle, threads=None)
    _, other = open_bundle(bundle, threads=None)
    divergences, errors = [], []
    for file in files:
        prompt = prompt_of(exact_bundle, manifest, file)
        rows, rounded = rows_of(exact, prompt), rows_of(other, prompt)
        errors += [np.abs(rows[key] - rounded[key]).max() / np.abs(rows[key]).max() for key in rows]
        expected = answered(exact, prompt, rows, tokens)
        answer = tuple(prediction.greedy for prediction in expected)
        got = answered(exact, prompt, rounded, tokens, answer)
        divergences += [
            kl_divergence(a.probabilities, a.logprobs, b.logprobs)
            for a, b in zip(expected, got, strict=True)
        ]
    return Divergence(tuple(divergences), row_error=float(max(errors)))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("exact", type=existing_bundle, help="bundle of f32")
    parser.add_argument("other", type=existing_bundle, help="bundle of another precision")
    parser.add_argument("files", type=existing_path, nargs="+", help="images and sounds")
    parser.add_argument("--tokens", type=int, default=32, help="of each answer")
    options = parser.parse_args()
    found = measured(options.exact, options.other, options.files, options.tokens)
    sys.stdout.write(
        f"{options.other.name}: KL {found.mean:.2g}, at most {max(found.by_token):.2g}, over "
        f"{len(found.by_token)} tokens; rows differ by at most {found.row_error:.2g}\n"
    )


if __name__ == "__main__":
    main()
