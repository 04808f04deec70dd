"""The vector of a text: its last hidden state against transformers' logits, and the mean."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from hearthd.baker.weights.open_weights import open_weights
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.config import ConfigError
from hearthd.models.dsl.evaluate import evaluate
from tests.models.families import ours
from tests.models.families.cases import TOKENS, random_tensors
from tests.models.families.family_recording import ROWS, recorded, write_folder
from tests.models.families.gguf_files import write_gguf

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.models.program import Program

    Array = NDArray[Any]

CASE = "qwen3-qwen3"


@pytest.fixture
def gguf_file(tmp_path: Path) -> Path:
    """As llama.cpp's converter writes Qwen3-Embedding."""
    write_folder(recorded(CASE), tmp_path)
    config: Any = ours.config_of(open_weights(tmp_path), "qwen3")
    return write_gguf(tmp_path, "qwen3", replace(config, pooling="last"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """As sentence-transformers saves Qwen3-Embedding: tensors without the prefix `model.`."""
    recording = recorded(CASE)
    (tmp_path / "config.json").write_text(json.dumps(recording.config))
    tensors = random_tensors(recording.shapes)
    plain = {name.removeprefix("model."): values for name, values in tensors.items()}
    save_file(plain, tmp_path / "model.safetensors")
    pooling = tmp_path / "1_Pooling"
    pooling.mkdir()
    modes = {"pooling_mode_mean_tokens": False, "pooling_mode_lasttoken": True}
    (pooling / "config.json").write_text(json.dumps({"word_embedding_dimension": 48, **modes}))
    return tmp_path


def embedded(program: Program, parameters: Mapping[str, Array], count: int) -> list[Array]:
    """What a text of `count` tokens gives, chunk by chunk."""
    ((_, graph),) = [pair for pair in program.entry_points if pair[0].kind == "embed"]
    caches: list[Array] = [np.zeros((spec.rows, spec.width), np.float32) for spec in program.caches]
    vectors = []
    for start in range(0, count, ours.CHUNK):
        tokens = np.zeros(ours.CHUNK, np.int32)
        chunk = TOKENS[start : min(count, start + ours.CHUNK)]
        tokens[: len(chunk)] = chunk
        numbers = (np.array([number], np.int32) for number in (start, len(chunk)))
        vector, *caches = evaluate(graph, [tokens, *numbers, *caches], parameters)
        vectors.append(vector)
    return vectors


@pytest.mark.parametrize("weights", ["folder", "gguf_file"])
def test_the_last_hidden_state_gives_the_logits_of_transformers(
    weights: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    source = open_weights(request.getfixturevalue(weights))
    config: Any = ours.config_of(source, "qwen3")
    assert config.pooling == "last"
    program, parameters = ours.parameters_of(source, "qwen3", config, tmp_path)
    expected = recorded(CASE).logits
    for row in (0, 59, 180):
        logits = embedded(program, parameters, row + 1)[-1] @ parameters["embed_tokens.weight"].T
        reference = expected[ROWS.index(row)]
        np.testing.assert_allclose(logits, reference, atol=1e-4 * np.abs(reference).max())


def test_the_mean_is_that_of_the_last_hidden_states_of_all_beginnings(folder: Path) -> None:
    source = open_weights(folder)
    config: Any = ours.config_of(source, "qwen3")
    last, parameters = ours.parameters_of(source, "qwen3", config, folder)
    mean = ARCHITECTURES["qwen3"].program(replace(config, pooling="mean"), ours.OPTIONS)
    states = [embedded(last, parameters, count)[-1] for count in (1, 2, 3)]
    np.testing.assert_allclose(embedded(mean, parameters, 3)[-1], sum(states), atol=1e-5)


def test_another_pooling_is_rejected(folder: Path) -> None:
    modes = {"pooling_mode_cls_token": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(modes))
    with pytest.raises(ConfigError, match="pooling: got 'cls', supported: mean, last"):
        ours.config_of(open_weights(folder), "qwen3")
