"""The rows of OpenVINO GenAI, with fake packages in the place of OpenVINO's."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from benchmarks.engines.decode_worker import EngineDescription
from benchmarks.engines.llama_bench import LlamaBench

if TYPE_CHECKING:
    from pathlib import Path

# A token takes a millisecond, in a prompt and in an answer. A prompt that was read before, at once.
FAKE_PACKAGE = """
from types import SimpleNamespace

__version__ = "2026.4"
read = set()

class GenerationConfig:
    pass

class LLMPipeline:
    def __init__(self, model, device, INFERENCE_NUM_THREADS):
        assert (device, INFERENCE_NUM_THREADS) == ("CPU", 2)

    def get_tokenizer(self):
        return SimpleNamespace(get_vocab=lambda: {str(id): id for id in range(500)})

    def generate(self, ids, config):
        (prompt,) = ids
        assert config.ignore_eos and not config.do_sample and max(prompt) < 500
        assert config.max_new_tokens == config.min_new_tokens
        first = 0.001 if tuple(prompt) in read else len(prompt)
        read.add(tuple(prompt))
        metric = lambda value: lambda: SimpleNamespace(mean=value)
        metrics = SimpleNamespace(get_ttft=metric(first), get_tpot=metric(1 / len(prompt)))
        return SimpleNamespace(perf_metrics=metrics)
"""


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    (tmp_path / "openvino.py").write_text("Tensor = lambda array: array.tolist()", "utf-8")
    (tmp_path / "openvino_genai.py").write_text(FAKE_PACKAGE, "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    return (sys.executable, "-m", "benchmarks.engines.openvino_bench")


def test_a_prompt_is_measured_to_its_first_token_and_an_answer_after_it(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    model = tmp_path / "smollm2.Q4_1.gguf"
    model.write_bytes(bytes(98))
    about, figures = LlamaBench("OpenVINO GenAI", command).measure(model, threads=2, context=1500)
    assert about == EngineDescription(
        quantisation="smollm2.Q4_1", weights_bytes=98, versions={"OpenVINO GenAI": "2026.4"}
    )
    assert figures == {
        "prefill_128": 1000, "prefill_512": 1000, "decode_128": 128_000, "decode_1024": 1_024_000,
    }  # fmt: skip
