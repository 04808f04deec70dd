"""Show what weights are that are not baked: a page for people, from their headers."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from typing import TYPE_CHECKING

from rich.table import Table

from hearthd.baker.checks.inspection import plain, preset_rows
from hearthd.baker.hub.verdict import require_bakeable
from hearthd.baker.pipeline.bake_errors import BAKE_ERRORS
from hearthd.baker.pipeline.encoder_recipe import encoder_recipes
from hearthd.baker.pipeline.recipe import size_of
from hearthd.baker.pipeline.weights_config import opened
from hearthd.baker.tokenizer.tokenizer_files import chat_template
from hearthd.baker.weights.source import WeightsError
from hearthd.bundle import NotABundle

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from hearthd.baker.pipeline.weights_config import Family
    from hearthd.baker.weights.source import WeightSource
    from hearthd.model_weights import Weights

_FORMATS = {"gguf": "GGUF file", "safetensors": "Hugging Face folder"}


def show_weights(weights: Weights, console: Console) -> None:
    """Print what a GGUF file or a Hugging Face folder has, and the command that takes it.

    Raises NotABundle if it is not valid, or after its description if a bake would reject it.
    """
    table = Table("", "", show_header=False, box=None, padding=(0, 2, 0, 0))
    source, family = opened(weights.path)
    try:
        rows = list(_rows(weights, source, family))
    except WeightsError as error:
        raise NotABundle(str(error)) from error
    *facts, (_, command) = rows
    for name, text in facts:
        table.add_row(plain(name), plain(text))
    console.print(plain(str(weights.path)), "", sep="\n", soft_wrap=True)
    console.print(table, "")
    try:
        require_bakeable(weights.path)
    except BAKE_ERRORS as error:
        raise NotABundle(str(error)) from error
    console.print(plain(f"next: {command}"), soft_wrap=True)


def _rows(weights: Weights, source: WeightSource, family: Family) -> Iterator[tuple[str, str]]:
    files = source.files()
    size = _megabytes(sum(path.stat().st_size for path in files))
    shards = f" in {len(files)} shards" if source.format == "gguf" and len(files) > 1 else ""
    shapes = {name: source.shape(name) for name in source.names()}
    count = sum(map(math.prod, shapes.values()))
    types = Counter(source.dtype(name) for name in shapes)
    yield "kind", f"{_FORMATS[source.format]} of {size}{shards}, not baked yet"
    known_size = size_of(family.recipe, family.config) if family.is_language_model else None
    yield "family", " ".join(filter(None, (family.name, known_size)))
    yield "architecture", family.architecture
    yield "size", f"{_rounded(count)} parameters in {len(shapes)} tensors"
    yield "layers", f"{family.config.layers} of width {family.config.hidden}"
    yield "vocabulary", f"{family.config.vocab_size:,} tokens"
    yield "tensors", ", ".join(f"{number} in {type_}" for type_, number in types.most_common())
    context = family.config.max_context
    if family.is_encoder:
        context = encoder_recipes()[family.recipe].lengths[-1]
    yield "context", f"{context:,} tokens"
    if not family.is_language_model:
        yield "next", f"hearth serve {shlex.quote(weights.model)}"
        return
    yield from preset_rows(weights.preset)
    has_template = chat_template(source) is not None
    yield "chat", "it has a chat template" if has_template else "a base model: no chat template"
    command = "run {}" if has_template else 'generate {} "Once upon a time"'
    yield "next", f"hearth {command.format(shlex.quote(weights.model))}"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def _rounded(count: int) -> str:
    """A count in millions or billions, as in the names of models."""
    return f"{count / 1e9:.2f} billion" if count >= 1e9 else f"{count / 1e6:.0f} million"
