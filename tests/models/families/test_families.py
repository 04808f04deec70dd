"""Every family against transformers, on random weights that transformers saved.

Where transformers is not installed, what it computed is read from tests/golden/families.npz, which
`python -m tests.models.families.record_families` writes.
"""

from __future__ import annotations

import importlib.util
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.baker.weights.open_weights import open_weights
from tests.by_day import BY_DAY
from tests.models.families import ours
from tests.models.families.cases import CASES, TOKENS
from tests.models.families.family_recording import EXACT, ROWS, publish, recorded, write_folder
from tests.models.families.gguf_files import write_gguf

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

TOLERANCE = 1e-4  # of the largest logit
# Of the standard deviation, against f64: after the recorded tokens, and after all. What remains is
# the rounding of products in f32, 6e-6 and 2.3e-5; PyTorch's is 2.1e-5 after all tokens.
EXACT_TOLERANCE, ALL_TOLERANCE = 8e-6, 3e-5
HAS_TRANSFORMERS = all(map(importlib.util.find_spec, ("torch", "transformers")))


# A case of each architecture in every run, and all cases of those in BY_DAY; the others at night.
_OF_ARCHITECTURE = {case.architecture: name for name, case in reversed([*CASES.items()])}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=()
            if case.architecture in BY_DAY or name == _OF_ARCHITECTURE[case.architecture]
            else pytest.mark.nightly,
        )
        for name, case in CASES.items()
    ],
)
def test_logits_equal_those_of_transformers(name: str, tmp_path: Path) -> None:
    case, recording = CASES[name], recorded(name)
    if HAS_TRANSFORMERS:
        from tests.models.families import oracle

        oracle.save_pretrained(case, tmp_path)
        expected = oracle.logits(tmp_path, TOKENS)
        close(recording.logits, expected[ROWS], 1e-5)
        assert recording.greedy == expected.argmax(axis=1).tolist()
        publish(case, tmp_path)
    else:
        write_folder(recording, tmp_path)
    logits = ours.logits(open_weights(tmp_path), case.architecture, tmp_path, TOKENS)
    close(logits[ROWS], recording.logits, TOLERANCE)
    assert logits.argmax(axis=1).tolist() == recording.greedy
    if HAS_TRANSFORMERS:
        close(logits, expected, TOLERANCE)
    assert (recording.exact is not None) == (name in EXACT)
    if recording.exact is not None:
        assert error(logits[ROWS], recording.exact) < EXACT_TOLERANCE
        if HAS_TRANSFORMERS:
            exact = oracle.exact_logits(tmp_path, TOKENS)
            assert error(recording.exact, exact[ROWS]) < 1e-6
            assert error(logits, exact) < ALL_TOLERANCE


def error(actual: NDArray[Any], exact: NDArray[Any]) -> float:
    """The largest one, by the standard deviation of the logits."""
    return float(np.abs(actual - exact).max() / exact.std())


def close(actual: NDArray[Any], expected: NDArray[Any], tolerance: float) -> None:
    assert np.abs(actual - expected).max() <= tolerance * np.abs(expected).max()


def about(value: Any) -> Any:
    """What equals the value of a field of a configuration; of numbers, the last bits may differ."""
    values = value if isinstance(value, tuple) else (value,)
    return pytest.approx(value) if any(isinstance(one, float) for one in values) else value


# What GGUF metadata do not say: other windows than the usual ones of an architecture, YaRN as an
# exact table, a scale of queries that is not the usual one, layers without experts, tokens without
# embeddings for layers, routers, and towers. Of the last two, files have other values: see
# test_recurrent_families.py.
NOT_IN_GGUF = {
    "llama-ministral",
    "llama-mistral_window", "llama-yarn", "qwen2-window", "qwen2-yarn", "qwen3-window",
    "llama4-chunks", "mellum-mellum", "phimoe-phimoe",
    "qwen3moe-mixed", "mistral3-window", "olmo2-olmo3_yarn", "smollm3-window", "granite-bias",
    "gemma2-uncapped", "gemma3-scaled", "olmoe-one", "olmoe-every", "lfm2moe-plain",
    "gpt-oss-plain", "smolvlm-idefics3", "smolvlm-tied", "qwen35-shared_keys",
    "falcon-h1-falcon_h1", "gemma3-images-window", "nemotron_h_moe-mixed", "gemma3n-unshared",
    "minicpm3-plain", "mixtral-window",
    "qwen35-images-mrope", "qwen35moe-images-mrope", "lfm2-vl-tied", "lfm2-vl-plain",
    "gemma4-images-clips", "gemma4-images-standardized", "gemma4-sound-towers", "qwen2moe-mixed",
    "gemma4-images-blocks", "gemma4-unified-blocks",
    "gemma4-moe-images-blocks", "mistral3-images-ministral3", "mistral3-images-mistral",
    "internvl-internvl", "internvl35-biases", "qwen25vl-images-mrope", "qwen2vl-images-mrope",
    "glm4v-images-mrope", "glm4v-text", "glm4vmoe-images-mrope", "glm-ocr-mrope",
    "paddleocr-vl-mrope",
    "minicpmv-qwen2", "minicpmv4-llama", "minicpmv45-qwen3",
    "lightonocr-lightonocr", "llava-llava", "llava-next-mistral", "granite-vision-granite",
    "pixtral-pixtral",
    "qwen3vl-images-deepstack", "qwen3vlmoe-images-deepstack",
    "voxtral-ministral", "ultravox-llama", "qwen2audio-qwen2", "qwen25omni-thinker",
    "cohere2-full", "starcoder2-window", "arcee-arcee", "granite_swa-bases", "lfm3-lfm3",
    "lfm3-untied", "mamba-norms",
    "gptj-gptj", "starcoder-exact", "bitnet-bitnet", "bitnet-untied",
}  # fmt: skip


# Of an architecture with several cases, the last one; by day of those in BY_DAY.
_IN_GGUF = {case.architecture: name for name, case in CASES.items() if name not in NOT_IN_GGUF}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=()
            if case.architecture in BY_DAY and name == _IN_GGUF[case.architecture]
            else pytest.mark.nightly,
        )
        for name, case in CASES.items()
        if name not in NOT_IN_GGUF
    ],
)
def test_a_gguf_file_holds_the_same_model(name: str, tmp_path: Path) -> None:
    """The same configuration, and the same values of every parameter."""
    case = CASES[name]
    write_folder(recorded(name), tmp_path)
    folder = open_weights(tmp_path)
    config: Any = ours.config_of(folder, case.architecture)
    file = open_weights(write_gguf(tmp_path, case.architecture, config))
    same: Any = ours.config_of(file, case.architecture)
    for key, value in asdict(config).items():
        assert getattr(same, key) == about(value), key
    _, expected = ours.parameters_of(folder, case.architecture, config, tmp_path)
    expected = {key: np.array(array) for key, array in expected.items()}
    _, actual = ours.parameters_of(file, case.architecture, config, tmp_path)
    assert expected.keys() == actual.keys()
    for key, values in expected.items():
        np.testing.assert_allclose(actual[key], values, rtol=1e-6, err_msg=key)
