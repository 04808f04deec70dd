"""Tuning of a LoRA adapter: trains the factors A and B of some matrices."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from hearthd.baker.adapters.adapter import write_adapter
from hearthd.baker.tuning import batches
from hearthd.baker.tuning.training_program import (
    TrainingTask,
    training_program,
    with_frozen_weights,
)
from hearthd.baker.tuning.tune_request import TuneError
from hearthd.bundle.lora.adapter_folder import TENSORS
from hearthd.bundle.lora.adapter_settings import AdapterSettings
from hearthd.models.decoder.next_token_loss import answer_loss_graph
from hearthd.models.dsl.types import DslError
from hearthd.models.lora.training import adapted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.baker.tuning.batches import Batch, Bucket
    from hearthd.baker.tuning.examples import Example
    from hearthd.baker.tuning.training_program import Trainer, TrainingOptions, TrainingProgram
    from hearthd.models.config import ModelConfig
    from hearthd.models.decoder.architecture import Architecture
    from hearthd.models.lora.training import Lora

    Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class LoraTask(TrainingTask):
    """Tunes an adapter; `base` is the name of the model's weights in its settings."""

    architecture: Architecture[Any]
    config: ModelConfig
    lora: Lora
    base: str
    output: str = TENSORS

    @override
    def traced(self, options: TrainingOptions) -> TrainingProgram:
        """As in TrainingTask; raises TuneError for a projection without a product."""
        model = self.architecture.model(self.config)
        parameters = model.parameters()
        losses, trained, checks = [], [], []
        for shape in options.shapes:
            graph = answer_loss_graph(
                model,
                name=f"loss_{shape.name}",
                sequences=shape.sequences,
                length=shape.length,
                rows=shape.rows,
            )
            try:
                loss, adapters = adapted(graph, parameters, self.lora)
            except DslError as error:
                raise TuneError(f"--targets: {error}") from error
            losses.append(loss)
            trained.append(adapters)
            if options.validated and self.lora.dropout:
                checks.append(adapted(graph, parameters, replace(self.lora, dropout=0.0))[0])
        stored = with_frozen_weights([*losses, *checks], parameters, options)
        return training_program(
            list(zip(stored.graphs, trained, strict=False)),
            stored.graphs[-len(losses) :] if options.validated else (),
            stored.weights,
            options,
        )

    @override
    def first(self, program: TrainingProgram, seed: int) -> Mapping[str, Array]:
        """As PEFT begins: A is uniform within 1 / sqrt(inputs), and B is zero."""
        adapters = {}
        for number, (name, type_) in enumerate(program.adapters.items()):
            rng = np.random.default_rng([seed, number])
            bound = 1 / math.sqrt(type_.shape[1]) if ".lora_A." in name else 0.0
            adapters[name] = rng.uniform(-bound, bound, type_.shape).astype(np.float32)
        return adapters

    @override
    def read(
        self, trainer: Trainer, examples: Sequence[Example], shapes: Sequence[Bucket], folder: Path
    ) -> None:
        """Compute nothing: each step computes the whole model."""

    @override
    def arrays(self, examples: Sequence[Example], batch: Batch, *, total: int) -> tuple[Array, ...]:
        return batches.arrays(examples, batch, total=total)

    @override
    def write(self, folder: Path, trained: Mapping[str, Array]) -> None:
        settings = AdapterSettings(
            rank=self.lora.rank,
            alpha=self.lora.alpha,
            projections=self.lora.projections,
            dropout=self.lora.dropout,
            base=self.base,
        )
        write_adapter(folder, settings, trained, self.architecture, self.config)
