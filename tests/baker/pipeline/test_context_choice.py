"""`--context auto`: the context of the model, where it costs short prompts nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from hearthd.baker.pipeline.context_choice import choose_context, first_context
from hearthd.baker.pipeline.memory_plan import program_memory
from hearthd.baker.pipeline.opened_model import OpenedModel
from hearthd.baker.pipeline.recipe import recipes
from hearthd.models.program import ProgramOptions
from tests.by_day import first_by_day
from tests.models.families.size_table import SIZES

if TYPE_CHECKING:
    from hearthd.baker.pipeline.context_choice import ContextChoice

LONGEST = 131_072
SOURCE: Any = None  # nothing is read


def opened(family: str, **fields: Any) -> OpenedModel:
    """A published size of two layers, trained for LONGEST positions."""
    architecture = recipes()[family][0].architecture
    values = SIZES[family].arguments() | {"max_context": LONGEST} | fields
    return OpenedModel(SOURCE, architecture, architecture.config(**values))


def chosen(model: OpenedModel, max_memory: int | None = None, **changes: Any) -> ContextChoice:
    options = ProgramOptions(
        context=first_context(model.config),
        precision="int8-g32",
        prefill_tokens=(16, 128),
        decode_batches=(1, 2),
    )
    return choose_context(model, replace(options, **changes), slots=2, max_memory=max_memory)


def needed(choice: ContextChoice, context: int) -> int:
    """The memory of two slots and of a prefix cache that keeps a context."""
    memory = program_memory(choice.program, context)
    return memory.needed(2, memory.context_blocks)


@pytest.mark.parametrize(
    ("family", "fields", "context", "reason"),
    first_by_day(
        [
            ("llama3", {}, LONGEST, "the model's"),
            ("gemma3", {}, LONGEST, "the model's"),
            ("llama3", {"max_context": 1000}, 1000, "the model's"),
            (
                "llama3",
                {"max_context": 2**20},
                2**18,
                "of the model's 1,048,576: longer ones change",
            ),
            ("phi4-mini", {}, 4096, "of the model's 131,072: longer ones change"),
            # A head of 96 values, and a cap of the scores.
            ("phi3", {}, 2048, "attention without a kernel reads all rows"),
            ("gemma2", {}, 2048, "attention without a kernel reads all rows"),
        ],
        2,
    ),
)
def test_the_context_is_that_of_the_model_where_short_prompts_stay_as_they_are(
    family: str, fields: dict[str, Any], context: int, reason: str
) -> None:
    choice = chosen(opened(family, **fields))
    assert choice.options.context == context
    (note,) = choice.notes
    assert note.startswith(f"context: {context:,} tokens per slot, ")
    assert reason in note
    assert choice.options.kv_cache is None
    points = {point.name: point.keys for point, _ in choice.program.entry_points}
    assert points["decode_1"] == context


def test_f32_has_no_kernel() -> None:
    assert chosen(opened("llama3"), precision="f32").options.context == 2048


def test_memory_decides_the_context_and_int8_caches() -> None:
    model = opened("llama3")
    whole = chosen(model)
    limit = needed(whole, 40_192)
    choice = chosen(model, limit)
    assert (choice.options.context, choice.options.kv_cache) == (40_192, None)
    assert "what --max-memory" in choice.notes[0]
    assert needed(choice, 40_192) <= limit
    # With f16 too little for what agents send.
    limit = needed(whole, 16_384)
    choice = chosen(model, limit)
    assert choice.options.kv_cache == "int8"
    assert 16_384 < choice.options.context < 2 * 16_384
    assert needed(choice, choice.options.context) <= limit
    assert "; KV caches of int8, since f16 would leave 16,384" in choice.notes[0]
    # What a user sets stays.
    choice = chosen(model, limit, kv_cache="f16")
    assert (choice.options.context, choice.options.kv_cache) == (16_384, "f16")
    # A model that needs no more has no use for int8.
    short = opened("llama3", max_context=8192)
    choice = chosen(short, needed(chosen(short), 8192))
    assert (choice.options.context, choice.options.kv_cache) == (8192, None)


def test_no_memory_leaves_the_shortest_context() -> None:
    assert chosen(opened("llama3"), 1).options.context == 2048


def test_experts_that_are_read_from_their_file_keep_half_of_the_memory() -> None:
    model, spare = opened("qwen3-moe"), 200_000_000
    program = chosen(model).program
    limit = program_memory(program, 2048, streamed=True).needed(2) + spare
    choice = chosen(model, limit, kv_cache="f16")
    assert 2048 < choice.options.context < LONGEST
    assert "with half of what is left for experts" in choice.notes[0]
    memory = program_memory(choice.program, choice.options.context, streamed=True)
    left = limit - memory.needed(2, memory.context_blocks)
    assert 0.5 <= left / spare < 0.75  # more, since calls of a shorter context take less
    # With room for all experts, they have no share.
    limit += program_memory(program, 2048).needed(2)
    assert "experts" not in chosen(model, limit, kv_cache="f16").notes[0]
