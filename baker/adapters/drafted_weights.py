"""Drafters of models: the weights of a tuned one, and the layer that some weights have."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from hearthd.baker.weights.source import BadFile, WeightSource, block_shapes
from hearthd.baker.weights.source_in_front import SourceInFront
from hearthd.models.decoder.drafting.drafter import Drafter, head_matrix
from hearthd.models.decoder.drafting.mtp import MtpConfig
from hearthd.models.decoder.tensor_names import MTP_MODULE
from hearthd.runtime.drafter_file import read_drafter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.baker.pipeline.opened_model import OpenedModel
    from hearthd.baker.weights.source import IntegerBlock
    from hearthd.models.config import ModelConfig
    from hearthd.models.decoder.architecture import Architecture
    from hearthd.runtime.drafter_file import DrafterFile

_HEAD = "drafter.head.weight"


def with_mtp(
    source: WeightSource, architecture: Architecture[Any], config: ModelConfig
) -> ModelConfig:
    """The configuration with the layer that predicts further tokens, if the weights have it.

    It is left out of weights that hold only some of its tensors, or others that it would not use,
    and of models whose rotary positions differ from those in the caches, which a draft knows.
    """
    if not isinstance(config, MtpConfig) or config.rotary_axes > 1:
        return config
    chosen, names, gguf = replace(config, mtp=True), source.names(), source.format == "gguf"
    used = {
        tensor.name
        for parameter in architecture.model(chosen).parameters()
        if parameter.startswith(f"{MTP_MODULE}.")
        for tensor in architecture.tensors.parts(chosen, parameter, names, gguf=gguf)
    }
    return chosen if used == architecture.tensors.of_mtp(names, gguf=gguf) else config


def mtp_left_out(model: OpenedModel) -> str | None:
    """Why `with_mtp` left out the layer that predicts further tokens, if these weights have one."""
    config, tensors, source = model.config, model.architecture.tensors, model.source
    is_used = isinstance(config, MtpConfig) and config.mtp
    if is_used or not tensors.of_mtp(source.names(), gguf=source.format == "gguf"):
        return None
    if not isinstance(config, MtpConfig):
        return f"Hearth has none for {model.architecture.name}"
    if config.rotary_axes > 1:
        return "its positions have no rows and columns of images"
    return "the weights have only some of its tensors, or others than it uses"


def model_drafter(path: Path, architecture: Architecture[Any], config: ModelConfig) -> DrafterFile:
    """Read a drafter from a file or a folder; raises BadFile if it does not fit the model."""
    try:
        drafter = read_drafter(path, vocab_size=config.vocab_size)
    except OSError as error:
        missing = error.filename or path
        raise BadFile(f"--drafter: cannot read {missing}: {error.strerror}") from error
    except ValueError as error:
        raise BadFile(f"--drafter: {error}") from error
    module = Drafter(config.hidden, len(drafter.head_tokens))
    expected = {name: x.shape for name, x in module.named_parameters().items() if name != _HEAD}
    actual = {name: weight.shape for name, weight in drafter.weights.items()}
    if actual != expected:
        raise BadFile(
            f"--drafter: {drafter.path} is not a drafter of {architecture.name} with hidden states "
            f"of width {config.hidden}; use one that `hearth tune --drafter` made for this model"
        )
    return drafter


class DraftedWeights(SourceInFront):
    """The tensors of a model and of its drafter, whose head is some rows of the model's head."""

    def __init__(
        self,
        base: WeightSource,
        drafter: DrafterFile,
        architecture: Architecture[Any],
        config: ModelConfig,
    ) -> None:
        super().__init__(base)
        self._drafter = drafter
        names, gguf = base.names(), base.format == "gguf"
        parameter, _ = head_matrix(architecture.model(config))
        self._head = architecture.tensors.find(config, parameter, names, gguf=gguf).name

    @override
    def names(self) -> tuple[str, ...]:
        return (*self._base.names(), *self._drafter.weights, _HEAD)

    @override
    def shape(self, name: str) -> tuple[int, ...]:
        if name == _HEAD:
            return len(self._drafter.head_tokens), self._base.shape(self._head)[1]
        weight = self._drafter.weights.get(name)
        return self._base.shape(name) if weight is None else weight.shape

    @override
    def dtype(self, name: str) -> str:
        """The stored type; "f32" for the drafter's."""
        return "f32" if self._is_of_drafter(name) else self._base.dtype(name)

    @override
    def blocks(self, name: str) -> Iterator[NDArray[np.float32]]:
        """The blocks of a tensor, f32."""
        if not self._is_of_drafter(name):
            yield from self._base.blocks(name)
            return
        weight = self._head_rows() if name == _HEAD else self._drafter.weights[name]
        start = 0
        for shape in block_shapes(weight.shape):
            rows = shape[0]
            yield weight[start : start + rows]
            start += rows

    def _head_rows(self) -> NDArray[np.float32]:
        """The rows of the model's head for the drafter's tokens, f32 (T, E)."""
        tokens, start, chosen = self._drafter.head_tokens, 0, []
        for block in self._base.blocks(self._head):
            inside = tokens[(tokens >= start) & (tokens < start + len(block))]
            chosen.append(block[inside - start])
            start += len(block)
        return np.concatenate(chosen)

    @override
    def integer_storage(self, name: str) -> str | None:
        """The storage that holds the integers of a tensor; the drafter's have none."""
        return None if self._is_of_drafter(name) else self._base.integer_storage(name)

    @override
    def integer_blocks(self, name: str) -> Iterator[IntegerBlock]:
        """The stored integers of a tensor; the drafter's have none."""
        if self._is_of_drafter(name):
            return WeightSource.integer_blocks(self, name)
        return self._base.integer_blocks(name)

    def _is_of_drafter(self, name: str) -> bool:
        return name == _HEAD or name in self._drafter.weights
