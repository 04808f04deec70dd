"""Measure the time to sample a token from 262144, by sampling options.

    python -m benchmarks.sampling --json figures.json

The logits resemble those of a model: a few likely tokens and a long tail. A decode step of Gemma 3
270M takes 10 ms (int8-g32) to 16 ms (bf16) on two cores; sampling should take less than 5 % of it.
With --bundle, grammars are measured with the tokenizer of the bundle.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from array import array
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hearthd.baker.presentation.table import Table, print_table
from hearthd.models.bundle import LanguageManifest, read_manifest_of
from hearthd.server.sampling.options import SamplingOptions
from hearthd.server.sampling.sampler import Sampler
from hearthd.server.text.grammars.grammar import Grammar, Grammars
from hearthd.server.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from hearthd.server.sampling.constraint import Constraint

VOCABULARY = 262_144
PROMPT = tuple(range(500)) * 4
DEFAULT = SamplingOptions()
OFF = replace(DEFAULT, top_k=0, top_p=1, min_p=0)
OPTIONS: dict[str, SamplingOptions] = {
    "defaults": DEFAULT,
    "greedy": replace(DEFAULT, temperature=0),
    "defaults, logprobs 5": replace(DEFAULT, logprobs=5),
    "defaults, logprobs 5 after sampling": replace(DEFAULT, logprobs=5, post_sampling_probs=True),
    "greedy, logprobs 20": replace(DEFAULT, temperature=0, logprobs=20),
    "repeat_penalty": replace(DEFAULT, repeat_penalty=1.1),
    "dry": replace(DEFAULT, dry_multiplier=0.8),
    "xtc": replace(DEFAULT, xtc_probability=0.5),
    "dynatemp": replace(DEFAULT, dynatemp_range=0.5),
    "logit_bias": replace(DEFAULT, logit_bias=((3, 1.0),)),
    "ignore_eos": replace(DEFAULT, ignore_eos=True),
    "min_p alone": replace(OFF, min_p=0.05),
    "top_p alone": replace(OFF, top_p=0.95),
    "typical_p alone": replace(OFF, typical_p=0.95),
    "no limits": OFF,
}
SCHEMA = '{"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}'
GRAMMARS = {
    "json_object": Grammar("json_object"),
    "json_schema": Grammar("json_schema", SCHEMA),
    "regex": Grammar("regex", "[a-z]{3}( [a-z]+)*"),
}


def model_like(seed: int) -> NDArray[np.float32]:
    """Logits f32 (VOCABULARY,) where about 100 tokens have most of the probability."""
    random = np.random.default_rng(seed)
    logits = random.standard_normal(VOCABULARY, np.float32) * 2
    likely = random.choice(VOCABULARY, 100, replace=False)
    logits[likely] += random.uniform(6, 16, 100).astype(np.float32)
    return logits


def microseconds(options: SamplingOptions, constraint: Constraint | None, rounds: int) -> float:
    """The median time per token of one answer, in microseconds."""
    tokens = array("q", PROMPT)
    sampler = Sampler(options, seed=1, tokens=tokens, ends=(1, 106), constraint=constraint)
    many = [model_like(seed) for seed in range(4)]
    times = []
    for number in range(rounds):
        began = time.perf_counter()
        sample = sampler.sample(many[number % len(many)])
        times.append(time.perf_counter() - began)
        tokens.append(sample.token)
        if sample.last or (constraint is not None and sample.token in (1, 106)):
            break
    return 1e6 * statistics.median(times)


def measure(rounds: int, bundle: Path | None) -> Iterator[tuple[str, float]]:
    """Yield the name of each measurement and its microseconds."""
    for name, options in OPTIONS.items():
        yield name, microseconds(options, None, rounds)
    if bundle is None:
        return
    manifest = read_manifest_of(bundle, LanguageManifest)
    tokenizer = Tokenizer.from_file(bundle / "tokenizer.json", bos=manifest.special_tokens.bos)
    grammars = Grammars(tokenizer, vocab_size=manifest.vocab_size, ends=manifest.special_tokens.eos)
    began = time.perf_counter()
    grammars.rules(Grammar("regex", "a"))
    yield "the first grammar", 1e6 * (time.perf_counter() - began)
    for name, grammar in GRAMMARS.items():
        began = time.perf_counter()
        rules = grammars.rules(grammar)
        yield f"{name}: compiling", 1e6 * (time.perf_counter() - began)
        yield f"{name}: defaults", microseconds(DEFAULT, rules, rounds)


def main() -> None:
    """Measure, print the table and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--bundle", type=Path)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    figures = dict(measure(arguments.rounds, arguments.bundle))
    rows = tuple((name, f"{figure:.0f}") for name, figure in figures.items())
    headings = ("options", "median, microseconds")
    print_table(Table(title="Time to sample a token", headings=headings, rows=rows))
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
