"""Record what llama.cpp's own samplers make of fixed logits, into llamacpp_samplers.json.

    python tests/golden/record_llamacpp_samplers.py MODEL.gguf

Recorded with llama-cpp-python 0.3.36. Of the model, a Gemma 3, only the vocabulary is read, for
DRY's breakers. The samplers are called one after the other on an array of candidates, as
common/sampling.cpp chains them; what is recorded are the candidates' ids and logits at the end.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import llama_cpp
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

OUT = Path(__file__).parent / "llamacpp_samplers.json"
DEFAULT_ORDER = [
    "penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature",
]  # fmt: skip
BREAKERS = ["\n", ":", '"', "*"]
VOCABULARY = 262_144
CASES = 240


class Llama:
    """llama.cpp with a vocabulary."""

    def __init__(self, model: str) -> None:
        parameters = llama_cpp.llama_model_default_params()
        parameters.vocab_only = True
        self._model = llama_cpp.llama_model_load_from_file(model.encode(), parameters)
        self._vocab = llama_cpp.llama_model_get_vocab(self._model)

    def piece(self, token: int) -> str:
        """The text of a token."""
        buffer = ctypes.create_string_buffer(256)
        size = llama_cpp.llama_token_to_piece(self._vocab, token, buffer, 256, 0, True)
        return buffer.raw[:size].decode(errors="replace")

    def sampler(self, name: str, o: dict[str, Any], context: int) -> Any:
        """A new sampler with a case's options; where -1 is the context, it is this long."""
        keep = o["min_keep"]
        repeat_last_n, dry_last_n = (
            context if n == -1 else n for n in (o["repeat_last_n"], o["dry_penalty_last_n"])
        )
        texts = (ctypes.c_char_p * len(BREAKERS))(*[b.encode() for b in BREAKERS])
        make: dict[str, Callable[[], Any]] = {
            "penalties": lambda: llama_cpp.llama_sampler_init_penalties(
                VOCABULARY, repeat_last_n,
                o["repeat_penalty"], o["frequency_penalty"], o["presence_penalty"],
            ),
            "dry": lambda: llama_cpp.llama_sampler_init_dry(
                self._vocab, o["dry_multiplier"], o["dry_base"], o["dry_allowed_length"],
                dry_last_n, texts, len(BREAKERS),
            ),
            "top_n_sigma": lambda: llama_cpp.llama_sampler_init_top_n_sigma(o["top_n_sigma"]),
            "top_k": lambda: llama_cpp.llama_sampler_init_top_k(o["top_k"]),
            "typ_p": lambda: llama_cpp.llama_sampler_init_typical(o["typical_p"], keep),
            "top_p": lambda: llama_cpp.llama_sampler_init_top_p(o["top_p"], keep),
            "min_p": lambda: llama_cpp.llama_sampler_init_min_p(o["min_p"], keep),
            "xtc": lambda: llama_cpp.llama_sampler_init_xtc(
                o["xtc_probability"], o["xtc_threshold"], keep, 1
            ),
            "temperature": lambda: llama_cpp.llama_sampler_init_temp_ext(
                o["temperature"], o["dynatemp_range"], o["dynatemp_exponent"]
            ),
        }  # fmt: skip
        return make[name]()

    def run(self, case: dict[str, Any]) -> list[list[float]]:
        """The candidates after a case's chain, as [id, logit], without logits of -inf."""
        candidates = zip(case["ids"], case["logits"], strict=True)
        data = [llama_cpp.llama_token_data(i, logit, 0) for i, logit in candidates]
        array = (llama_cpp.llama_token_data * len(data))(*data)
        tokens = llama_cpp.llama_token_data_array(array, len(array), -1, False)
        pairs = [llama_cpp.llama_logit_bias(*pair) for pair in case["logit_bias"]]
        biases = (llama_cpp.llama_logit_bias * len(pairs))(*pairs)
        chain = [llama_cpp.llama_sampler_init_logit_bias(VOCABULARY, len(biases), biases)]
        context = len(case["tokens"])
        chain += [self.sampler(name, case["options"], context) for name in case["samplers"]]
        for sampler in chain:
            for token in case["tokens"]:
                llama_cpp.llama_sampler_accept(sampler, token)
            llama_cpp.llama_sampler_apply(sampler, ctypes.byref(tokens))
            llama_cpp.llama_sampler_free(sampler)
        left = [tokens.data[i] for i in range(tokens.size)]
        return [[t.id, float(f"{t.logit:.7g}")] for t in left if t.logit > -np.inf]


def make_case(random: np.random.Generator, vocabulary: list[int]) -> dict[str, Any]:
    """Random logits, history and options, each option off in half of the cases."""

    def maybe(off: float, low: float, high: float) -> float:
        return off if random.random() < 0.5 else round(random.uniform(low, high), 3)

    ids = random.choice(vocabulary, int(random.integers(2, 40)), replace=False).tolist()
    spread = random.choice([0.5, 2, 6])
    order = list(DEFAULT_ORDER)
    if random.random() < 0.7:
        random.shuffle(order)
        order = order[: random.integers(1, 6)]
    # A few words in many repetitions, so that DRY has something to find.
    words = [random.choice(ids, int(random.integers(1, 5))).tolist() for _ in range(3)]
    tokens = [t for _ in range(random.integers(0, 12)) for t in words[random.integers(3)]]
    options = {
        "temperature": float(random.choice([0, 0.3, 0.8, 1, 2])),
        "dynatemp_range": maybe(0, 0, 1.5),
        "dynatemp_exponent": maybe(1, 0.2, 3),
        "top_n_sigma": maybe(-1, 0, 3),
        "top_k": int(random.choice([0, 1, 5, 20])),
        "top_p": maybe(1, 0, 1),
        "min_p": maybe(0, 0, 0.5),
        "typical_p": maybe(1, 0, 1),
        "repeat_penalty": maybe(1, 0.5, 2),
        "repeat_last_n": int(random.choice([0, 4, 64, -1])),
        "presence_penalty": maybe(0, -1, 2),
        "frequency_penalty": maybe(0, -1, 2),
        "dry_multiplier": maybe(0, 0.1, 2),
        "dry_base": maybe(1.75, 1, 4),
        "dry_allowed_length": int(random.integers(0, 4)),
        "dry_penalty_last_n": int(random.choice([-1, 0, 6, 64])),
        "xtc_probability": float(random.choice([0, 1])),
        "xtc_threshold": maybe(0.1, 0.01, 0.6),
        "min_keep": int(random.choice([0, 0, 1, 3, 8])),
    }
    logits = (random.standard_normal(len(ids)) * spread).astype(np.float32)
    biased = random.choice(ids, int(random.integers(0, 3)), replace=False).tolist()
    return {
        "ids": ids,
        "logits": [round(float(x), 4) for x in logits],
        "tokens": tokens,
        "logit_bias": [[i, round(random.uniform(-3, 3), 3)] for i in biased],
        "samplers": order,
        "options": options,
    }


def main(model: str) -> None:
    """Record all cases."""
    llama = Llama(model)
    random = np.random.default_rng(20250729)
    # Among others tokens that hold a breaker, alone or with more.
    texts = {i: llama.piece(i) for i in range(200, 6000)}
    breaking = [i for i, text in texts.items() if any(b in text for b in BREAKERS)][:12]
    vocabulary = sorted({*random.choice(list(texts), 60, replace=False).tolist(), *breaking})
    cases = [make_case(random, vocabulary) for _ in range(CASES)]
    for case in cases:
        case["left"] = llama.run(case)
    head = {
        "about": "recorded by record_llamacpp_samplers.py",
        "breakers": BREAKERS,
        "texts": {str(i): texts[i] for i in vocabulary},
    }
    lines = ",\n".join(json.dumps(case) for case in cases)
    text = json.dumps(head)[:-1] + ', "cases": [\n' + lines + "\n]}\n"
    OUT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
