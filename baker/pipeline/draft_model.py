"""The weights of a draft model, beside the model that it drafts for."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from typing_extensions import override

from hearthd.baker.parameters.native import NATIVE, integer_storage
from hearthd.baker.parameters.parameter_writer import (
    keeps_integers,
    parameter_blocks,
    parameter_integers,
    tensors_of,
)
from hearthd.baker.pipeline.opened_model import OpenedModel
from hearthd.baker.pipeline.weights_config import assistant_of, identify, model_config
from hearthd.baker.weights.open_weights import open_weights
from hearthd.baker.weights.safetensors import CONFIG, SafetensorsSource
from hearthd.baker.weights.source import BadFile, WeightSource
from hearthd.baker.weights.source_in_front import SourceInFront
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.decoder.gemma4_config import Gemma4Config
from hearthd.models.decoder.tensor_names import DRAFTER_MODULE
from hearthd.models.dsl.storage import STORAGES
from hearthd.models.families.gemma4_assistant import Config as AssistantConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from hearthd.baker.tokenizer.tokenizer_cache import TokenizerCache
    from hearthd.baker.weights.source import IntegerBlock
    from hearthd.models.config import ModelConfig
    from hearthd.models.program import StoredTensor

_PREFIX = f"{DRAFTER_MODULE}."


def draft_model_path(drafter: Path | Literal["none"] | None) -> Path | None:
    """The path of `--drafter` if it is a language model, and not a drafter of `hearth tune`."""
    if isinstance(drafter, Path) and (drafter.suffix == ".gguf" or (drafter / CONFIG).is_file()):
        return drafter
    return None


def with_draft_model(model: OpenedModel, path: Path, context: int) -> OpenedModel:
    """A model with a language model to draft with.

    Raises a WeightsError, RecipeError or ConfigError if it does not fit.
    """
    draft = open_draft_model(path, context, model.tokenizers)
    drafting = replace(model, source=WeightsWithDraftModel(model.source, draft), draft=draft)
    if isinstance(draft.config, AssistantConfig):
        _require_same_heads(draft.config, model.config, path)
    else:
        _require_same_vocabulary(draft, drafting, path)
    return drafting


def open_draft_model(path: Path, context: int, tokenizers: TokenizerCache | None) -> OpenedModel:
    """A language model to draft with; raises a WeightsError, RecipeError or ConfigError."""
    source = open_weights(path)
    if (assistant := assistant_of(source)) is not None:
        return OpenedModel(source, assistant, model_config(source, assistant), tokenizers)
    family = identify(source, None)
    if family.architecture not in ARCHITECTURES:
        raise BadFile(
            f"--drafter: {path} is {family.name}, which generates no text; use a language model "
            "with the vocabulary of the model"
        )
    architecture, config = ARCHITECTURES[family.architecture], family.config
    return OpenedModel(source, architecture, config.for_context(context), tokenizers)


def _require_same_heads(draft: AssistantConfig, model: ModelConfig, path: Path) -> None:
    """Raise BadFile unless an assistant can read the keys and values of a model."""
    expected = {"vocab_size": draft.vocab_size, "hidden": draft.backbone}
    actual = {"vocab_size": model.vocab_size, "hidden": model.hidden}
    if isinstance(model, Gemma4Config):
        expected |= {"head_dim": draft.head_dim, "local.head_dim": draft.local.head_dim}
        actual |= {"head_dim": model.head_dim, "local.head_dim": model.local.head_dim}
        shapes = (model, model.local)
        if expected == actual and not any(draft.heads % shape.kv_heads for shape in shapes):
            return
    raise BadFile(
        f"--drafter: {path} is the assistant of another model: it needs a Gemma 4 with hidden "
        f"states of width {draft.backbone}, {draft.vocab_size} tokens and heads of width "
        f"{draft.local.head_dim} and {draft.head_dim}; use the assistant of this model"
    )


def _require_same_vocabulary(draft: OpenedModel, model: OpenedModel, path: Path) -> None:
    """Raise BadFile unless each id that both models have is the same token.

    The tables of models of one series differ in the ids at the end, which no text has.
    """
    pairs = [opened.tokenizer.tokenizer.get_vocab() for opened in (draft, model)]
    drafted, expected = ({id_: token for token, id_ in pair.items()} for pair in pairs)
    for id_ in sorted(drafted.keys() & expected.keys()):
        if drafted[id_] != expected[id_]:
            raise BadFile(
                f"--drafter: {path} has another vocabulary than the model: token {id_} is "
                f"{drafted[id_]!r:.40}, expected {expected[id_]!r:.40}; use a small model of the "
                "same series"
            )


class WeightsWithDraftModel(SourceInFront):
    """The tensors of a model, and the parameters of its draft model by their names in programs.

    The files are the model's. Raises a WeightsError for a tensor of the draft model that is
    missing or not used.
    """

    def __init__(self, base: WeightSource, draft: OpenedModel) -> None:
        super().__init__(base)
        self._draft = draft.source
        towers = set(draft.architecture.tower_parameters(draft.config))
        self._shapes = {
            name: x.shape
            for name, x in draft.architecture.model(draft.config).parameters().items()
            if name not in towers
        }
        tensors = tensors_of(draft.source, draft.architecture, draft.config, self._shapes)
        self._tensors = {_PREFIX + name: parts for name, parts in tensors.items()}

    @override
    def names(self) -> tuple[str, ...]:
        return (*self._base.names(), *self._tensors)

    @override
    def shape(self, name: str) -> tuple[int, ...]:
        if name not in self._tensors:
            return self._base.shape(name)
        return self._shapes[name.removeprefix(_PREFIX)]

    @override
    def dtype(self, name: str) -> str:
        """The stored type; "f32" for integers of the draft model in an order of their own."""
        if name not in self._tensors:
            return self._base.dtype(name)
        types = {self._draft.dtype(tensor.name) for tensor in self._tensors[name]}
        stored = types.pop()
        is_changed = (
            types or stored == "I64" or (stored in NATIVE and self.integer_storage(name) is None)
        )
        return "f32" if is_changed else stored

    @override
    def blocks(self, name: str) -> Iterator[NDArray[np.float32]]:
        if name not in self._tensors:
            return self._base.blocks(name)
        columns = self.shape(name)[-1]
        return itertools.chain.from_iterable(
            self._values(tensor, columns) for tensor in self._tensors[name]
        )

    def _values(self, tensor: StoredTensor, columns: int) -> Iterator[NDArray[np.float32]]:
        """The values of a parameter of the draft model; token ids are integers of 64 bits."""
        source = self._draft
        if isinstance(source, SafetensorsSource) and source.dtype(tensor.name) == "I64":
            return iter((source.stored(tensor.name).astype(np.float32),))
        return parameter_blocks(source, tensor, columns)

    @override
    def integer_storage(self, name: str) -> str | None:
        if name not in self._tensors:
            return self._base.integer_storage(name)
        storages = {self._storage(tensor) for tensor in self._tensors[name]}
        return storages.pop() if len(storages) == 1 else None

    def _storage(self, tensor: StoredTensor) -> str | None:
        """The storage that holds the integers of a tensor of the draft model, if one does."""
        storage = integer_storage(self._draft, tensor.name)
        is_kept = storage is not None and keeps_integers(self._draft, tensor, STORAGES[storage])
        return storage if is_kept else None

    @override
    def integer_blocks(self, name: str) -> Iterator[IntegerBlock]:
        if name not in self._tensors:
            return self._base.integer_blocks(name)
        return itertools.chain.from_iterable(
            parameter_integers(self._draft, tensor) for tensor in self._tensors[name]
        )

    @override
    def require_unchanged(self) -> None:
        self._base.require_unchanged()
        self._draft.require_unchanged()
