"""Programs with places for adapters: against merged weights, in every batch, with no adapter."""

from __future__ import annotations

import json
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from rich.console import Console

from baker.adapters.adapter import write_adapter
from baker.compare.sides import open_side
from baker.compare.sides.open_side import SideOptions
from baker.compare.sides.prediction import FullPrediction
from baker.pipeline.bake_language_model import bake
from baker.pipeline.recipe import BakeRequest
from baker.progress import TerminalProgress
from baker.reference.numpy_runtime import NumpyRuntime, stored_parameters, traced
from models.bundle import PARAMETERS
from models.gemma3 import ARCHITECTURE, Config
from models.lora import PROJECTIONS
from models.peft.adapter_factors import read_factors
from models.peft.adapter_folder import read_peft_adapter
from models.peft.adapter_settings import AdapterSettings, BadAdapter
from runtime.interface import prefill_all_but_last, read_prompt
from runtime.open_bundle import open_bundle
from tests.baker.tuning import tiny_model

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from models.bundle import LanguageManifest
    from runtime.language_model import IreeRuntime

    Logits = NDArray[np.float32]

CONFIG = Config(
    layers=2, hidden=64, ffn=96, heads=2, kv_heads=1, head_dim=32, max_context=256,
    vocab_size=tiny_model.CONFIG.vocab_size, query_scale=0.25, windows=(32, None),
)  # fmt: skip
SLOTS, SCALE, STEPS = 3, 0.7, 4
# Rank and matrices of each adapter: smaller ranks than the places', and not every matrix.
ADAPTERS = ((8, PROJECTIONS), (4, ("q_proj", "v_proj", "down_proj")), (3, ("k_proj", "up_proj")))
# How far the logits of rounded weights and factors are from those of merged f32 weights.
ROUNDED = {"bf16": 0.04, "int8-g32": 0.12}
PROMPTS = [list(range(3, 3 + length)) for length in (21, 5, 40)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model, the adapters and a bundle of them."""
    folder = tmp_path_factory.mktemp("places")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny_model, "CONFIG", CONFIG)
        tiny_model.write_model(folder / "model")
    path = folder / "model" / "config.json"
    changes = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 32}
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    for number, (rank, projections) in enumerate(ADAPTERS):
        settings = AdapterSettings(rank=rank, alpha=8.0, projections=projections)
        matrices = random_factors(number, rank, projections)
        (folder / str(number)).mkdir()
        write_adapter(folder / str(number), settings, matrices, ARCHITECTURE, CONFIG)
    return folder


def random_factors(seed: int, rank: int, projections: Sequence[str]) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    factors: dict[str, Any] = {}
    for name, tensor in ARCHITECTURE.model(CONFIG).parameters().items():
        module, (rows, *columns) = name.removesuffix(".weight"), tensor.shape
        if module.rpartition(".")[2] in projections:
            shapes = {"lora_A": (rank, *columns), "lora_B": (rows, rank)}
            for factor, shape in shapes.items():
                values = rng.normal(size=shape).astype(np.float32) / 8
                factors[f"{module}.{factor}.weight"] = values
    return factors


def baked(folder: Path, precision: str) -> Path:
    out = folder / precision
    if out.exists():
        return out
    request = BakeRequest(
        model="gemma3", weights=folder / "model", size=None, target="host", precision=precision,
        context=128, slots=SLOTS, prefix=None, out=out, adapters=3, rank=8,
    )  # fmt: skip
    return bake(request, TerminalProgress(Console(quiet=True)))


def opened(folder: Path, precision: str) -> tuple[LanguageManifest, IreeRuntime]:
    """The bundle, with adapter `n` at place n + 1."""
    manifest, runtime = open_bundle(baked(folder, precision), threads=1)
    for number in range(len(ADAPTERS)):
        factors = read_factors(folder / str(number), manifest.adapters)
        runtime.write_adapter(number + 1, factors.arrays)
    return manifest, runtime


def choose(folder: Path, runtime: IreeRuntime, places: Sequence[int]) -> None:
    for slot, place in enumerate(places):
        scale = 0.0
        if place:
            scale = SCALE * read_factors(folder / str(place - 1), runtime.adapters).scale
        runtime.set_adapter(slot, place, scale)


def alone(runtime: IreeRuntime) -> Logits:
    """The logits after each prompt and some tokens, (prompts, steps, V), one by one."""
    answers = []
    for slot, prompt in enumerate(PROMPTS):
        rows = [read_prompt(runtime, prompt, slot=slot)]
        rows += [
            runtime.decode([slot], [step + 3], [len(prompt) + step])[0] for step in range(STEPS)
        ]
        answers.append(np.stack(rows))
    return np.stack(answers)


def together(runtime: IreeRuntime) -> Logits:
    """The same, in one batch."""
    for slot, prompt in enumerate(PROMPTS):
        prefill_all_but_last(runtime, prompt, slot=slot)
    tokens = [[prompt[-1] for prompt in PROMPTS], *([step + 3] * SLOTS for step in range(STEPS))]
    rows = [
        runtime.decode(range(SLOTS), row, [len(prompt) - 1 + step for prompt in PROMPTS])
        for step, row in enumerate(tokens)
    ]
    return np.stack(rows, axis=1)


@pytest.mark.slow
def test_adapters_in_one_batch_have_the_bits_that_each_has_alone(folder: Path) -> None:
    _, runtime = opened(folder, "int8-g32")
    without = alone(runtime)
    by_place = {0: without}
    for place in range(1, len(ADAPTERS) + 1):
        choose(folder, runtime, [place] * SLOTS)
        by_place[place] = alone(runtime)
        assert not np.allclose(by_place[place], without, atol=0.1)
    for places in product(range(len(ADAPTERS) + 1), repeat=SLOTS):
        choose(folder, runtime, places)
        rows = together(runtime)
        for slot, place in enumerate(places):
            assert np.array_equal(rows[slot], by_place[place][slot]), f"{places}: slot {slot}"
    choose(folder, runtime, [2, 0, 0])
    read_prompt(runtime, PROMPTS[0], slot=0)
    verified = runtime.verify(0, [3, 4, 5, 6], len(PROMPTS[0]))
    assert np.array_equal(np.stack(list(verified)), by_place[2][0][1:])
    choose(folder, runtime, [0] * SLOTS)
    rows_of = {
        name: read_prompt(variant, PROMPTS[1]) for name, variant in runtime.variants().items()
    }
    for name, row in rows_of.items():
        assert np.array_equal(row, rows_of[name.removesuffix(", adapted")]), name
    choose(folder, runtime, [1, 2, 3])
    before = together(runtime)
    for place in (1, 3):
        runtime.write_adapter(place, read_factors(folder / "1", runtime.adapters).arrays)
    for place in (3, 1):
        factors = read_factors(folder / str(place - 1), runtime.adapters)
        runtime.write_adapter(place, factors.arrays)
    assert np.array_equal(together(runtime), before)


@pytest.mark.slow
def test_an_adapter_computes_what_merged_weights_compute(folder: Path) -> None:
    manifest, runtime = opened(folder, "f32")
    rounded = {precision: opened(folder, precision)[1] for precision in ROUNDED}
    modules = {matrix.module: matrix for matrix in manifest.adapters.matrices}
    shapes = {name: (matrix.rows, matrix.columns) for name, matrix in modules.items()}
    for number, prompt in enumerate(PROMPTS):
        adapter = read_peft_adapter(folder / str(number), shapes)
        program = traced(manifest)
        arrays = stored_parameters(program.parameters, folder / "f32" / PARAMETERS)
        merged = {name: np.array(array) for name, array in arrays.items()}
        for weight in program.weights:
            for stored, (source, rows) in product(weight.parameters, weight.rows().items()):
                module = ARCHITECTURE.module_in_folder(CONFIG, source.removesuffix(".weight"))
                if term := adapter.terms.get(module):
                    merged[stored][rows.start : rows.stop] += SCALE * term.scale * term.b @ term.a
        reference = NumpyRuntime(program, merged, context=manifest.context, slots=1)
        choose(folder, runtime, [number + 1])
        expected = read_prompt(reference, prompt)
        np.testing.assert_allclose(read_prompt(runtime, prompt), expected, atol=5e-5)
        for precision, other in rounded.items():
            choose(folder, other, [number + 1])
            error = np.abs(read_prompt(other, prompt) - expected).max()
            assert error <= ROUNDED[precision], f"{precision}, adapter {number}"
    compare_reads_what_a_request_gets(folder, runtime)


def compare_reads_what_a_request_gets(folder: Path, runtime: IreeRuntime) -> None:
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
        pytest.raises(BadAdapter, match=r"cannot read .*adapter_config.json"),
        open_side.opened(f"{folder / 'f32'}+{folder / 'model' / 'none'}", options),
    ):
        pass
