"""OpenVINO GenAI with the options and the output of llama-bench.

    python -m venv openvino && openvino/bin/pip install "openvino-genai>=2026.4,<2027"
    python -m benchmarks.decode --pair smollm2-native=SmolLM2-135M-Instruct.Q4_1.gguf \\
        --llama-bench "OpenVINO GenAI=openvino/bin/python benchmarks/engines/openvino_bench.py"

This file runs in an environment that has OpenVINO and nothing of Hearth. OpenVINO GenAI 2026.4
reads GGUF files of the architectures llama, qwen2 and qwen3. It keeps the prefixes of prompts, so
each prompt has other random tokens.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import openvino_genai


@dataclass
class Pipeline:
    """A model in OpenVINO GenAI that reads prompts of random tokens."""

    model: Path
    threads: int
    _random: random.Random = field(default_factory=lambda: random.Random(0))

    def __post_init__(self) -> None:
        options = {"INFERENCE_NUM_THREADS": self.threads}
        self._pipeline = openvino_genai.LLMPipeline(str(self.model), "CPU", **options)
        vocabulary = self._pipeline.get_tokenizer().get_vocab()
        self._tokens = range(min(len(vocabulary), 1000))
        self.run(8, 2)  # compiles kernels

    def run(self, prompt: int, tokens: int) -> Any:
        """Read `prompt` tokens and generate `tokens` tokens; returns PerfMetrics."""
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = config.min_new_tokens = tokens
        config.ignore_eos = True
        config.do_sample = False
        ids = np.array([self._random.choices(self._tokens, k=prompt)], np.int64)
        return self._pipeline.generate(openvino.Tensor(ids), config).perf_metrics

    def prefill_rate(self, prompt: int) -> float:
        """Tokens/s of reading a prompt, until its first token."""
        return 1e3 * prompt / float(self.run(prompt, 1).get_ttft().mean)

    def decode_rate(self, depth: int, tokens: int) -> float:
        """Tokens/s of `tokens` tokens after `depth` tokens; the first one is of the prefill."""
        return 1e3 / float(self.run(depth, tokens + 1).get_tpot().mean)


def rows(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of llama-bench: one for each prompt, or one of decoding."""
    pipeline = Pipeline(arguments.model, arguments.threads)
    about = {
        "model_type": f"GGUF file {arguments.model.stem}",
        "model_size": arguments.model.stat().st_size,
        "build_commit": openvino_genai.__version__,
    }

    def row(prompt: int, tokens: int, rates: list[float]) -> dict[str, Any]:
        return {**about, "n_prompt": prompt, "n_gen": tokens, "avg_ts": statistics.mean(rates)}

    repeated = range(arguments.repetitions)
    if arguments.tokens:
        rates = [pipeline.decode_rate(arguments.depth, arguments.tokens) for _ in repeated]
        return [row(0, arguments.tokens, rates)]
    sizes = map(int, arguments.prompts.split(","))
    return [row(size, 0, [pipeline.prefill_rate(size) for _ in repeated]) for size in sizes]


def main() -> None:
    """Measure and print JSON."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("-m", dest="model", type=Path, required=True)
    parser.add_argument("-t", dest="threads", type=int, required=True)
    parser.add_argument("-r", dest="repetitions", type=int, default=1)
    parser.add_argument("-p", dest="prompts", default="", help="tokens of each prompt, 128,512")
    parser.add_argument("-n", dest="tokens", type=int, default=0, help="tokens to generate")
    parser.add_argument("-d", "--n-depth", dest="depth", type=int, default=0)
    parser.add_argument("-o", dest="output", choices=["json"], default="json")
    json.dump(rows(parser.parse_args()), sys.stdout)


if __name__ == "__main__":
    main()
