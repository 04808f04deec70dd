"""What the default precision of a tower changes in answers, in NumPy: at most the goal.

Matrices have rows of length 1, approximately. Published towers began with values of a standard
deviation of 0.02 (`initializer_range` of their configurations): rows of length 0.55 to 0.68.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file, save_file

from hearthd.baker.parameters import native
from hearthd.baker.parameters.parameter_writer import locate, write_parameters
from hearthd.baker.pipeline.weights_config import identify
from hearthd.baker.reference.numpy_runtime import stored_parameters
from hearthd.baker.weights.open_weights import open_weights
from hearthd.models.cache_buffers import empty_caches
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.precision import PRECISIONS
from hearthd.models.program import ProgramOptions
from hearthd.runtime.interface import NO_TOKEN
from hearthd.runtime.media.pixels import patches_of
from hearthd.runtime.rotary_positions import RotaryPositions
from hearthd.server.engine.prompt import ImageRows, Prompt
from hearthd.server.images.grids import grids
from tests.baker import small_gemma4, small_gemma4_sound, small_lfm2vl, small_qwen35
from tests.baker.small_smolvlm import pixels

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    Array = NDArray[Any]

GOAL = 0.001  # nats
GAIN = 1.5  # the length of a row of `random_tensors`
CHUNK, TOKENS, ROWS, FRAMES = 128, 16, 70, 100
SIZES = ((100, 60), (20, 50))
WRITERS: dict[str, Callable[[Path], Path]] = {
    "gemma4-images": small_gemma4.small_gemma4,
    "gemma4-images, blocks": small_gemma4.small_gemma4_blocks,
    "gemma4-sound": small_gemma4_sound.small_gemma4_sound,
    "lfm2-vl": small_lfm2vl.small_lfm2vl,
    "qwen35-images": small_qwen35.small_qwen35,
}


class Model:
    """A program of a folder, computed by NumPy."""

    def __init__(self, folder: Path, precision: str, archive: Path) -> None:
        """With the activations that are usual for the precision."""
        source = open_weights(folder)
        found = identify(source, None)
        family, config = ARCHITECTURES[found.architecture], found.config
        self.sounds = config.sound is not None
        options = ProgramOptions(
            context=512, precision=precision, prefill_tokens=(CHUNK,), decode_batches=(1,),
            activations=PRECISIONS[precision].rounding,
            storages=native.storages(precision, source, family, config), reads_rows=True,
            image_rows=(ROWS,), sound_rows=(FRAMES // 4,) if self.sounds else (),
        )  # fmt: skip
        self.program = family.program(config, options)
        write_parameters(source, locate(source, family, config, self.program), archive, print)
        self.parameters = stored_parameters(self.program.parameters, archive)
        settings: Any = family.image_input(config, source.metadata())
        self.settings = settings.limited(ROWS)
        self.graphs = {point.name: graph for point, graph in self.program.entry_points}

    def call(self, name: str, inputs: list[Array]) -> list[Array]:
        return evaluate(self.graphs[name], inputs, self.parameters)

    def rows(self) -> list[Array]:
        """The rows of each image, or of each sound."""
        if self.sounds:
            rng, count = np.random.default_rng(0), np.array([FRAMES], np.int32)
            frames = rng.normal(-4, 2, (len(SIZES), FRAMES, 128)).astype(np.float32)
            return [self.call(f"sound_{FRAMES // 4}", [each, count])[0] for each in frames]
        result, merged = [], self.settings.merged**2
        for size in SIZES:
            image = grids(Image.fromarray(pixels(*size)), self.settings, "").pixels[0]
            patches = patches_of(image, self.settings)
            (rows,) = self.call(f"image_{ROWS}", [*patches.padded(ROWS * merged)])
            result.append(rows[: len(patches.values) // merged])
        return result

    def answer(self, rows: Array, tokens: list[int]) -> list[Array]:
        """Logits of an answer: of these tokens, or of the greedy ones, which are added to them."""
        both_ways = self.settings.both_ways and not self.sounds
        image = ImageRows(media=rows, digest=b"x", count=len(rows), both_ways=both_ways)
        prompt = Prompt(tuple(b"Describe"), image, tuple(b"in detail:"))
        rotary, start = RotaryPositions(has_axes=self.settings.axes > 1), 0
        caches = empty_caches(self.program.caches)
        for chunk in prompt[: len(prompt) - 1].chunks(CHUNK):
            name, size = ("block", ROWS) if chunk.both_ways else ("rows", CHUNK)
            padded = np.full(size, -2, np.int32)
            padded[: len(chunk)] = chunk.tokens
            given = np.zeros((size, self.program.row_width), np.float32)
            given[padded == NO_TOKEN] = chunk.rows({b"x": rows}) if chunk.images else 0.0
            inputs = [padded, np.array([start], np.int32), *rotary.of_rows(0, start, size), given]
            caches = self.call(f"prefill_{name}_{size}", [*inputs, *caches])
            start += len(chunk)
        token, answer, is_given = prompt.tokens[-1], [], bool(tokens)
        for position in range(TOKENS):
            numbers = [np.array([x], np.int32) for x in (token, start + position, 1)]
            shifts = rotary.shifts([0], [start + position])
            logits, *caches = self.call("decode_1", [*numbers, *shifts, *caches])
            answer.append(logits[0].astype(np.float64))
            token = tokens[position] if is_given else int(logits[0].argmax())
            if not is_given:
                tokens.append(token)
        return answer


def divergence(exact: Array, other: Array) -> float:
    p, q = (logits - logits.max() for logits in (exact, other))
    p, q = (x - np.log(np.exp(x).sum()) for x in (p, q))
    return float((np.exp(p) * (p - q)).sum())


def test_the_towers_of_gemma_4_have_12_bits(tmp_path: Path) -> None:
    """But a matrix that a file stores as integers keeps them."""
    source = open_weights(small_gemma4.small_gemma4(tmp_path / "model"))
    family = ARCHITECTURES["gemma4-images"]
    config = small_gemma4.CONFIG
    matrices = {
        name
        for name, parameter in family.model(config).parameters().items()
        if name.startswith(("tower.", "projector.")) and parameter.type.rank == 2
    }
    for precision in ("int8-g32", "native", "int4-g32"):
        found = native.storages(precision, source, family, config)
        assert found == dict.fromkeys(matrices, "int12-g32")
        assert native.default_precision(precision, source, family, config) != "native"
    for precision in ("f32", "bf16", "int12-g32"):
        assert native.storages(precision, source, family, config) == {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "integer_storage", lambda name: "int8-g32" if "mlp" in name else None)
        kept = native.storages("native", source, family, config)
    assert kept == {name: "int12-g32" for name in matrices if "mlp" not in name}


@pytest.mark.nightly
@pytest.mark.parametrize("precision", ["int8-g32", "native"])
@pytest.mark.parametrize("name", WRITERS)
def test_a_tower_changes_answers_by_less_than_the_goal(
    name: str, precision: str, tmp_path: Path
) -> None:
    folder = WRITERS[name](tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    with_unit_rows = {
        name: values / GAIN if values.ndim > 1 and "norm" not in name else values
        for name, values in tensors.items()
    }
    save_file(with_unit_rows, folder / "model.safetensors", metadata={"format": "pt"})
    exact, rounded = (Model(folder, each, tmp_path / each) for each in ("f32", precision))
    found: list[float] = []
    for rows, other in zip(exact.rows(), rounded.rows(), strict=True):
        tokens: list[int] = []
        answer = exact.answer(rows, tokens)
        found += map(divergence, answer, exact.answer(other, tokens))
    mean = float(np.mean(found))
    assert 0 < mean <= GOAL, (name, precision, mean)
