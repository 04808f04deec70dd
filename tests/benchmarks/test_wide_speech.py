"""A model of speech in a larger shape computes the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.wide_speech import read_model, twice, widened, write_model

if TYPE_CHECKING:
    from pathlib import Path

_RNG = np.random.default_rng(0)
_X = _RNG.normal(size=8)


def _random(*shape: int) -> np.ndarray:
    return _RNG.normal(size=shape)


@pytest.mark.parametrize(
    ("name", "rows", "parts"),
    [
        ("encoder/layer_0/ffn/linear_0", 12, 1),
        ("encoder/layer_0/self_attention/linear_0", 24, 3),
        ("decoder/layer_3/attention/linear_1", 16, 2),
    ],
)
def test_results_are_there_twice(name: str, rows: int, parts: int) -> None:
    weight, bias = _random(rows, 8), _random(rows)
    wide = twice(f"{name}/weight", weight) @ np.tile(_X, 2) + twice(f"{name}/bias", bias)
    expected = [np.tile(part, 2) for part in np.split(weight @ _X + bias, parts)]
    np.testing.assert_allclose(wide, np.concatenate(expected))


def test_sound_is_read_once_and_the_second_convolution_halves() -> None:
    sound, states = _random(80, 3), _random(8, 3)
    first, second = _random(8, 80, 3), _random(8, 8, 3)
    wide = np.einsum("oik,ik->o", twice("encoder/conv1/weight", first), sound)
    np.testing.assert_allclose(wide, np.tile(np.einsum("oik,ik->o", first, sound), 2))
    wide = np.einsum("oik,ik->o", twice("encoder/conv2/weight", second), np.tile(states, (2, 1)))
    np.testing.assert_allclose(wide, np.tile(np.einsum("oik,ik->o", second, states), 2))


def test_logits_are_the_same() -> None:
    table, gamma = _random(5, 8), _random(8)
    norm = twice("decoder/layer_norm/gamma", gamma)
    wide = twice("decoder/embeddings/weight", table) @ (norm * np.tile(_X, 2))
    np.testing.assert_allclose(wide, table @ (gamma * _X))
    assert twice("decoder/num_heads", np.array(6, "<i2")) == 12


def test_added_layers_add_nothing(tmp_path: Path) -> None:
    weight = _random(8, 8).astype("f2")
    names = ("self_attention/linear_1", "attention/linear_2", "ffn/linear_1", "attention/linear_0")
    variables = {
        f"decoder/layer_{layer}/{name}/weight": weight for layer in range(4) for name in names
    }
    write_model(tmp_path / "model.bin", _HEAD, widened(variables), b"\1\0\0\0")
    head, read, tail = read_model(tmp_path / "model.bin")
    assert (head, tail) == (_HEAD, b"\1\0\0\0")
    assert len(read) == 12 * len(names)
    for layer in range(12):
        for name in names:
            values = read[f"decoder/layer_{layer}/{name}/weight"]
            assert values.dtype == np.float16
            assert values.any() == (layer < 4 or name == "attention/linear_0")


def test_weights_of_integers_are_refused() -> None:
    with pytest.raises(SystemExit, match="weights of integers"):
        widened({"decoder/layer_0/ffn/linear_0/weight": np.zeros((8, 8), np.int8)})


_HEAD = b"\6\0\0\0\x0c\0WhisperSpec\0\3\0\0\0"
