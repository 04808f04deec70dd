"""Programs with places for adapters: against PEFT, in every batch, with no adapter."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pytest
from rich.console import Console

from hearthd.baker.compare.sides import open_side
from hearthd.baker.compare.sides.open_side import SideOptions
from hearthd.baker.compare.sides.prediction import FullPrediction
from hearthd.baker.pipeline.bake import bake
from hearthd.baker.progress import TerminalProgress
from hearthd.baker.tuning import tuning
from hearthd.baker.tuning.tune_request import TuneRequest
from hearthd.bundle.lora.adapter_factors import read_factors
from hearthd.bundle.lora.adapter_settings import BadAdapter
from hearthd.models.catalog import ARCHITECTURES
from hearthd.runtime.interface import prefill_all_but_last, read_prompt
from hearthd.runtime.open_bundle import open_bundle
from tests.baker.adapters.places_case import (
    ADAPTERS,
    CASE,
    LOGITS,
    PROMPTS,
    SCALE,
    write_adapters,
    write_model,
)
from tests.conftest import few_entry_points, options_for

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.runtime.language_model import IreeRuntime

    Logits = NDArray[np.float32]

SLOTS, STEPS = 2, 4
# How far logits are from PEFT's: products with integers have rounded activations, keys, values and
# factors.
ERRORS = {"f32": 5e-5, "native": 0.1, "int12-g32": 0.1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model and the adapters, and bundles when they are baked."""
    folder = tmp_path_factory.mktemp("places")
    write_model(folder / "model.gguf")
    write_adapters(folder)
    return folder


def opened(folder: Path, precision: str, *, slots: int) -> IreeRuntime:
    """The runtime of a new bundle, with adapter `n` at place n + 1."""
    options = options_for(
        folder / precision, weights=folder / "model.gguf", precision=precision, slots=slots,
        adapters=len(ADAPTERS), rank=8,
    )  # fmt: skip
    with few_entry_points():
        bundle = bake(options, TerminalProgress(Console(quiet=True)))
    _, runtime = open_bundle(bundle, threads=1)
    for number in range(len(ADAPTERS)):
        factors = read_factors(folder / str(number), runtime.adapters)
        runtime.write_adapter(number + 1, factors.arrays)
    return runtime


def choose(folder: Path, runtime: IreeRuntime, places: Sequence[int]) -> None:
    for slot, place in enumerate(places):
        scale = 0.0
        if place:
            scale = SCALE * read_factors(folder / str(place - 1), runtime.adapters).scale
        runtime.set_adapter(slot, place, scale)


def require_the_logits_of_peft(folder: Path, runtime: IreeRuntime, precision: str) -> None:
    recorded = np.load(LOGITS)
    for number, prompt in enumerate(PROMPTS):
        choose(folder, runtime, [number + 1])
        logits = read_prompt(runtime, prompt)
        np.testing.assert_allclose(logits, recorded[str(number)], rtol=0, atol=ERRORS[precision])


def alone(runtime: IreeRuntime) -> Logits:
    """The logits after each prompt and some tokens, (slots, steps, V), one by one."""
    answers = []
    for slot, prompt in enumerate(PROMPTS[:SLOTS]):
        rows = [read_prompt(runtime, prompt, slot=slot)]
        rows += [
            runtime.decode([slot], [step + 3], [len(prompt) + step])[0] for step in range(STEPS)
        ]
        answers.append(np.stack(rows))
    return np.stack(answers)


def together(runtime: IreeRuntime) -> Logits:
    """The same, in one batch."""
    prompts = PROMPTS[:SLOTS]
    for slot, prompt in enumerate(prompts):
        prefill_all_but_last(runtime, prompt, slot=slot)
    tokens = [[prompt[-1] for prompt in prompts], *([step + 3] * SLOTS for step in range(STEPS))]
    rows = [
        runtime.decode(range(SLOTS), row, [len(prompt) - 1 + step for prompt in prompts])
        for step, row in enumerate(tokens)
    ]
    return np.stack(rows, axis=1)


def require_that_tuning_reads_the_bundle(folder: Path, precision: str) -> None:
    """Require the examples and the weights of the GGUF file."""
    data = folder / "data.jsonl"
    data.write_text('{"prompt": "the t", "completion": "he the"}\n')
    bundle, file = (
        tuning._prepared(TuneRequest(
            model="gemma3", data=data, out=folder / "out", weights=folder / name,
            targets=("q_proj",),
        ))
        for name in (precision, "model.gguf")
    )  # fmt: skip
    assert bundle.learned == file.learned
    tensors = ARCHITECTURES[CASE.architecture].tensors
    for parameter, values in CASE.weights().items():
        stored = tensors.find(CASE.config, parameter, (), gguf=False)
        actual = bundle.source.read(stored.name) + np.float32(stored.offset)
        # A table in int8 has 127 steps in the largest magnitude of 32 columns, 12 bits have 2039.
        steps = {"int12-g32": 2039} if values.ndim == 2 else {}
        if parameter == "embed_tokens.weight":
            steps["native"] = 127
        is_coarse = precision in steps
        tolerance = np.abs(values).max() / (2 * steps[precision]) if is_coarse else 1e-6
        np.testing.assert_allclose(actual, values, rtol=1e-3 if is_coarse else 0, atol=tolerance)


@pytest.mark.slow
@pytest.mark.nightly
def test_adapters_in_one_batch_have_the_bits_that_each_has_alone(folder: Path) -> None:
    runtime = opened(folder, "native", slots=SLOTS)
    require_the_logits_of_peft(folder, runtime, "native")
    choose(folder, runtime, [0] * SLOTS)
    by_place = {0: alone(runtime)}
    for place in range(1, len(ADAPTERS) + 1):
        choose(folder, runtime, [place] * SLOTS)
        by_place[place] = alone(runtime)
        assert not np.allclose(by_place[place], by_place[0], atol=0.1)
    for places in product(range(len(ADAPTERS) + 1), repeat=SLOTS):
        choose(folder, runtime, places)
        rows = together(runtime)
        for slot, place in enumerate(places):
            assert np.array_equal(rows[slot], by_place[place][slot]), f"{places}: slot {slot}"
    choose(folder, runtime, [2, 0])
    read_prompt(runtime, PROMPTS[0], slot=0)
    verified = runtime.verify(0, [3, 4, 5, 6], len(PROMPTS[0]))
    assert np.array_equal(np.stack(list(verified)), by_place[2][0][1:])
    choose(folder, runtime, [0] * SLOTS)
    rows_of = {
        name: read_prompt(variant, PROMPTS[1]) for name, variant in runtime.variants().items()
    }
    for name, row in rows_of.items():
        assert np.array_equal(row, rows_of[name.removesuffix(", adapted")]), name
    choose(folder, runtime, [1, 3])
    before = together(runtime)
    for place in (1, 3):
        runtime.write_adapter(place, read_factors(folder / "1", runtime.adapters).arrays)
    for place in (3, 1):
        factors = read_factors(folder / str(place - 1), runtime.adapters)
        runtime.write_adapter(place, factors.arrays)
    assert np.array_equal(together(runtime), before)
    require_that_tuning_reads_the_bundle(folder, "native")


@pytest.mark.nightly
@pytest.mark.slow
def test_adapters_beside_integers_of_12_bits_are_those_of_peft(folder: Path) -> None:
    runtime = opened(folder, "int12-g32", slots=SLOTS)
    require_the_logits_of_peft(folder, runtime, "int12-g32")
    by_place = {}
    for place in (0, 1, 3):
        choose(folder, runtime, [place] * SLOTS)
        by_place[place] = alone(runtime)
    for places in ((0, 1), (3, 1)):
        choose(folder, runtime, places)
        rows = together(runtime)
        for slot, place in enumerate(places):
            assert np.array_equal(rows[slot], by_place[place][slot]), f"{places}: slot {slot}"
    require_that_tuning_reads_the_bundle(folder, "int12-g32")


@pytest.mark.nightly
@pytest.mark.slow
def test_an_adapter_computes_what_peft_computes(folder: Path) -> None:
    runtime = opened(folder, "f32", slots=1)
    require_the_logits_of_peft(folder, runtime, "f32")
    require_that_tuning_reads_the_bundle(folder, "f32")
    options = SideOptions(threads=1, llama_context=0, top=1, vocabulary=None, key=None)
    factors = read_factors(folder / "0", runtime.adapters)
    runtime.set_adapter(0, 1, factors.scale)
    with open_side.opened(f"exact:{folder / 'f32'}+{folder / '0'}", options) as side:
        predicted = list(side.read(PROMPTS[0], 10))
        logits = [read_prompt(runtime, PROMPTS[0][:end]) for end in range(10, len(PROMPTS[0]))]
        for one, row in zip(predicted, logits, strict=True):
            assert isinstance(one, FullPrediction)
            np.testing.assert_allclose(one.logits, row, atol=1e-5)
        assert side.about.details["adapter"] == f"0, {factors.digest.hex()[:16]}"
    with (
        pytest.raises(BadAdapter, match=r"cannot read .*none: No such file"),
        open_side.opened(f"{folder / 'f32'}+{folder / 'none'}", options),
    ):
        pass
