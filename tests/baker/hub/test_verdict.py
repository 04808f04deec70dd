"""The verdict on weights: the memory of a bake, and the speed by the bytes of a decode."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import gguf
import numpy as np

from hearthd.baker.hub import verdict
from hearthd.baker.hub.verdict import Verdict, examine
from hearthd.baker.pipeline.bake import resolve
from hearthd.baker.pipeline.bake_options import BakeOptions
from hearthd.baker.pipeline.language_plan import LanguagePlan
from hearthd.baker.pipeline.memory_plan import program_memory
from hearthd.bundle import Memory
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.decoder.experts import ExpertsConfig
from tests.baker.pipeline.test_bake_encoder import encoder_options, write_model
from tests.models.families.gguf_files import add_byte_vocabulary, add_config

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.baker.hub.conftest import Files

EXPERTS = ExpertsConfig(
    layers=1, hidden=64, ffn=96, heads=2, kv_heads=1, head_dim=64, max_context=64, vocab_size=257,
    norm_eps=1e-6, rope_base=1e4, tied=True, experts=6, experts_per_token=2, expert_ffn=32,
    routed=(True,), normalized=True,
)  # fmt: skip


def write_experts(path: Path, config: ExpertsConfig) -> Path:
    architecture = ARCHITECTURES["qwen3moe"]
    writer = gguf.GGUFWriter(path, "qwen3moe")
    add_config(writer, "qwen3moe", config)
    add_byte_vocabulary(writer, ("<bos>",))
    for name, tensor in architecture.model(config).parameters().items():
        stored = architecture.tensors.find(config, name, (), gguf=True).name
        shape = tensor.shape
        if ".experts." in name:
            shape = config.experts, shape[0] // config.experts, shape[1]
        writer.add_tensor(stored, np.zeros(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_the_memory_is_that_of_the_bake(small: Files, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(small.gguf)
    plan = resolve(BakeOptions(weights=path))
    assert isinstance(plan, LanguagePlan)
    memory = program_memory(plan.model.program(plan.program), plan.program.context)
    examined = examine(path)
    assert (examined.memory, examined.slots) == (memory, plan.slots)
    assert examined.per_token is not None
    assert 0 < examined.per_token < memory.weights


def test_a_token_reads_the_experts_that_it_is_routed_to(tmp_path: Path) -> None:
    two, all_ = (
        examine(
            write_experts(tmp_path / f"{count}.gguf", replace(EXPERTS, experts_per_token=count))
        )
        for count in (2, 6)
    )
    weights = 6 * 3 * 32 * 64  # of int8, with one scale of two bytes for 32
    assert two.per_token is not None
    assert all_.per_token is not None
    assert all_.per_token - two.per_token == weights * 34 // 32 * 4 // 6
    assert two.memory.weights == all_.memory.weights


def test_a_token_reads_one_row_of_a_table_that_is_not_the_head(tmp_path: Path) -> None:
    tied, untied = (
        examine(write_experts(tmp_path / f"{flag}.gguf", replace(EXPERTS, tied=flag)))
        for flag in (True, False)
    )
    assert tied.per_token == untied.per_token


def test_an_encoder_has_a_memory_and_no_speed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = resolve(encoder_options(write_model(tmp_path / "model"), tmp_path / "bundle"))
    monkeypatch.setattr(verdict, "resolve", lambda _: plan)
    examined = examine(tmp_path / "model")
    assert examined.memory.weights > 0
    model, memory = examined.lines(10**9)
    assert model == "xlm-roberta in f32, 64 tokens of context"
    assert memory.endswith("; there are 1,000.0 MB")


def test_the_slots_are_those_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdict, "read_bandwidth", lambda *_: 30.0)
    memory = Memory(
        vocab_size=1, context=64, weights=10**9, slot=10**8, block=1, steps={1: 0, 4: 0}
    )
    examined = Verdict(
        model="gemma3 4b",
        precision="native",
        memory=memory,
        slots=4,
        per_token=5 * 10**8,
        has_tower=False,
    )
    model, sum_, speed = examined.lines(memory.needed(3))
    assert model == "gemma3 4b in native, 64 tokens of context or more, 3 slots"
    assert " + slots 300.0; there are " in sum_
    assert speed == (
        "speed: at most 60 tokens/s: a token reads 500.0 MB of weights, and memory is read at "
        "30 GB/s"
    )
    assert examined.fits(memory.needed(1))
    assert not examined.fits(memory.needed(1) - 1)
