"""The context of a bundle with `--context auto`: the model's, unless it costs something.

A long context costs short prompts nothing where kernels compute attention: they read the keys that
a token sees, and the caches of a slot take memory as its tokens come. Golden values and the size of
a bundle do not depend on it either. So the machine that bakes does not decide: a server of the
bundle uses as much of the context as its memory allows, and `--max-memory` stands for its memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from hearthd.baker.pipeline.memory_plan import needs_streaming, program_memory
from hearthd.bundle import MIN_AUTO_CONTEXT, longest_context, megabytes
from hearthd.models.precision import PRECISIONS

if TYPE_CHECKING:
    from hearthd.baker.pipeline.opened_model import OpenedModel
    from hearthd.models.config import ModelConfig
    from hearthd.models.program import Program, ProgramOptions

# Agents send prompts of 6,000 to 20,000 tokens, and need room for the answer.
_AGENT_CONTEXT = 24_576
_ATTENTION = {"cached_attention", "int4_cache_attention", "int8_cache_attention"}


@dataclass(frozen=True)
class ContextChoice:
    """The options with the chosen context, their program, and lines that say why."""

    options: ProgramOptions
    program: Program
    notes: tuple[str, ...] = ()

    def because(self, reason: str) -> ContextChoice:
        """This choice with its reason."""
        return replace(
            self, notes=(f"context: {self.options.context:,} tokens per slot, {reason}",)
        )


def first_context(config: ModelConfig) -> int:
    """The context that `--context auto` has before it is chosen: the shortest possible one."""
    return min(MIN_AUTO_CONTEXT, config.auto_context)


def choose_context(
    model: OpenedModel, options: ProgramOptions, *, slots: int, max_memory: int | None
) -> ContextChoice:
    """Choose the context, and caches of int8 if `options` leave them open and memory is short.

    Raises TypeRuleError if the precision cannot store a matrix.
    """
    longest = model.config.auto_context
    choice = None
    if PRECISIONS[options.precision].kernels:
        choice = _traced(model, options, longest)
    if choice is None or not _reads_seen_keys_only(choice.program):
        shortest = first_context(model.config)
        return _traced(model, options, shortest).because(
            "since attention without a kernel reads all rows of a cache in each step; "
            "--context sets another one"
        )
    if max_memory is None:
        return choice.because(_all_of(model.config))
    return _within(max_memory, model, choice, slots)


def _within(
    max_memory: int, model: OpenedModel, choice: ContextChoice, slots: int
) -> ContextChoice:
    """The choice with the longest context that fits in a number of bytes.

    Where experts are read from their file, half of the memory that they can have is theirs.
    """
    longest, shortest = choice.options.context, first_context(model.config)
    streamed = needs_streaming(choice.program, shortest, slots, max_memory)
    limit, share = max_memory, ""
    if streamed:
        least = program_memory(choice.program, shortest, streamed=True).needed(slots)
        limit, share = limit - (limit - least) // 2, ", with half of what is left for experts"

    def fitting(choice: ContextChoice) -> int:
        memory_of = partial(program_memory, choice.program, streamed=streamed)
        return longest_context(memory_of, limit, slots=slots, longest=longest)

    context, rounding = fitting(choice), ""
    if context < min(longest, _AGENT_CONTEXT) and choice.options.kv_cache is None:
        int8 = _traced(model, replace(choice.options, kv_cache="int8"), longest)
        if (longer := fitting(int8)) > context:
            rounding = f"; KV caches of int8, since f16 would leave {context:,}"
            context, choice = longer, int8
    if context == longest:
        return choice.because(_all_of(model.config) + rounding)
    return _traced(model, choice.options, context).because(
        f"what --max-memory {megabytes(max_memory)} MB allows of {longest:,}{share}{rounding}"
    )


def _traced(model: OpenedModel, options: ProgramOptions, context: int) -> ContextChoice:
    options = replace(options, context=context)
    return ContextChoice(options, model.program(options))


def _reads_seen_keys_only(program: Program) -> bool:
    """Whether kernels compute all attention."""
    return not any(_ATTENTION & refused.keys() for refused in program.unfused.values())


def _all_of(config: ModelConfig) -> str:
    """Why the longest context was chosen."""
    if config.auto_context < config.max_context:
        return (
            f"of the model's {config.max_context:,}: longer ones change the values of short texts"
        )
    return "the model's; a server uses as much of it as its memory allows"
