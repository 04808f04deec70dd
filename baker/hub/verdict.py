"""What a model is, whether this machine can serve it, and how fast: by the headers of its files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hearthd.baker.memory_bandwidth import physical_cores, read_bandwidth
from hearthd.baker.pipeline.bake import resolve
from hearthd.baker.pipeline.bake_options import BakeOptions
from hearthd.baker.pipeline.kinds.bake_arrays import ModelPlan
from hearthd.baker.pipeline.language_plan import LanguagePlan
from hearthd.baker.pipeline.memory_plan import program_memory, token_bytes
from hearthd.baker.pipeline.recipe import size_of
from hearthd.baker.pipeline.shared_stages import storing_in
from hearthd.baker.weights.source import FLOAT_TYPES
from hearthd.bundle import megabytes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hearthd.baker.weights.source import WeightSource
    from hearthd.bundle import Memory

_MEASURED = 1 << 28  # bytes: a small device has no gigabyte to spare


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a bake with its defaults makes of a model.

    model      family and size, such as "gemma3 270m"; of a quantized folder also its types
    precision  how matrices are stored
    memory     that serving takes
    slots      sequences at once
    per_token  bytes of weights that a decode reads; None unless a language model
    has_tower  whether it reads images or sound
    """

    model: str
    precision: str
    memory: Memory
    slots: int
    per_token: int | None
    has_tower: bool

    def fits(self, limit: int) -> bool:
        """Whether at least one slot can be served with `limit` bytes."""
        return self.memory.needed(1) <= limit

    def lines(self, limit: int) -> Iterator[str]:
        """What a user should know; measures the bandwidth of memory, which takes a second."""
        slots = next((n for n in range(self.slots, 0, -1) if self.memory.needed(n) <= limit), 1)
        serves = "" if self.per_token is None else f" or more, {slots} slots"
        yield f"{self.model} in {self.precision}, {self.memory.context} tokens of context{serves}"
        yield f"memory: {self.memory.formula(slots)}; there are {megabytes(limit)} MB"
        if self.per_token is not None:
            bandwidth = read_bandwidth(physical_cores(), _MEASURED)
            yield (
                f"speed: at most {bandwidth * 1e9 / self.per_token:,.0f} tokens/s: a token reads "
                f"{megabytes(self.per_token)} MB of weights, and memory is read at "
                f"{bandwidth:.0f} GB/s"
            )


def examine(weights: Path) -> Verdict:
    """The verdict on weights; reads no tensor.

    Raises the one of BAKE_ERRORS that a bake raises before it reads a tensor.
    """
    match resolve(BakeOptions(weights=weights)):
        case LanguagePlan() as plan:
            return _of_language_model(plan)
        case ModelPlan() as plan:
            return _of_other_model(plan)
        case _:
            raise AssertionError("weights without a name are never a GRU's")


def require_bakeable(weights: Path) -> None:
    """Raise what `examine` raises, in a fraction of its time: the memory is not computed."""
    plan = resolve(BakeOptions(weights=weights))
    if isinstance(plan, LanguagePlan):
        smallest = replace(
            plan.program,
            prefill_tokens=plan.program.prefill_tokens[:1],
            long_prefill=0,
            decode_batches=(1,),
            verify_tokens=plan.program.verify_tokens[:1],
            pair_tokens=0,
        )
        with storing_in(smallest.precision):
            program = plan.model.program(smallest)
        plan.model.require_complete(program)
    elif isinstance(plan, ModelPlan):
        plan.locate(plan.program())


def _of_language_model(plan: LanguagePlan) -> Verdict:
    model, config = plan.record.model, plan.model.config
    with storing_in(plan.program.precision):
        program = plan.model.program(plan.program)
    plan.model.require_complete(program)
    memory = program_memory(program, plan.program.context)
    return Verdict(
        model=" ".join(
            filter(None, (model, size_of(model, config), _folder_types(plan.model.source)))
        ),
        precision=plan.program.precision,
        memory=memory,
        slots=plan.slots,
        per_token=token_bytes(program),
        has_tower=config.reads_rows,
    )


def _of_other_model(plan: ModelPlan) -> Verdict:
    """The verdict on an encoder or a model of speech."""
    plan.locate(plan.program())
    return Verdict(
        model=" ".join(filter(None, (plan.record.model, _folder_types(plan.source)))),
        precision=plan.precision,
        memory=plan.memory(),
        slots=1,
        per_token=None,
        has_tower=False,
    )


def _folder_types(source: WeightSource) -> str | None:
    """The quantized types of a folder; None for a GGUF file, whose name has its type."""
    if source.format == "gguf":
        return None
    types = sorted({source.dtype(name) for name in source.names()} - set(FLOAT_TYPES))
    return f"({', '.join(types)})" if types else None
