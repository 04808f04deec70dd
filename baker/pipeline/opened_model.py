"""A language model whose weights are open: what they are, and the programs that it can have."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hearthd.baker.parameters import native
from hearthd.baker.parameters.parameter_writer import locate
from hearthd.baker.pipeline import recipe
from hearthd.baker.tokenizer.tokenizer_files import SourceTokenizer, read_tokenizer
from hearthd.models.program import ProgramOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hearthd.baker.parameters.parameter_writer import Located
    from hearthd.baker.pipeline.recipe import Defaults
    from hearthd.baker.weights.source import WeightSource
    from hearthd.models.config import ModelConfig
    from hearthd.models.decoder.architecture import Architecture
    from hearthd.models.program import Program


@dataclass(frozen=True)
class OpenedModel:
    """The weights, the architecture and its configuration for the context of the bundle."""

    source: WeightSource
    architecture: Architecture[Any]
    config: ModelConfig

    @cached_property
    def tokenizer(self) -> SourceTokenizer:
        """The tokenizer of the weights; raises a WeightsError."""
        return read_tokenizer(self.source, vocab_size=self.config.vocab_size)

    def storages(self, precision: str) -> dict[str, str]:
        """The parameters that are stored in another way than the precision's, as in the file."""
        return native.storages(precision, self.source, self.architecture, self.config)

    def program(self, defaults: Defaults, assigned: Mapping[str, str] | None = None) -> Program:
        """The program of a recipe's values, with `assigned` in place of `storages`.

        Raises TypeRuleError if the precision cannot store a matrix.
        """
        options = ProgramOptions(
            context=defaults.context,
            precision=defaults.precision,
            prefill_tokens=defaults.prefill_tokens,
            decode_batches=recipe.decode_batches(defaults.slots),
            verify_tokens=recipe.VERIFY_TOKENS,
            storages=self.storages(defaults.precision) if assigned is None else assigned,
            kv_cache=defaults.kv_cache,
            activations=defaults.activations,
            adapters=defaults.adapters,
            adapter_rank=defaults.rank,
        )
        return self.architecture.program(self.config, options)

    def locate(self, program: Program) -> tuple[Located, ...]:
        """The tensors of each weight of a program; raises a WeightsError."""
        return locate(self.source, self.architecture, self.config, program)
