"""What Hearth computes with weights, in NumPy, after every token."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hearthd.baker.parameters.parameter_writer import locate, write_parameters
from hearthd.baker.reference.numpy_runtime import stored_parameters
from hearthd.models.cache_buffers import cache_types, empty_caches
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.decoder.entry_points import read
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.storage import F32
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, TensorType
from hearthd.models.optimized import optimized
from hearthd.models.program import ProgramOptions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.baker.weights.source import WeightSource
    from hearthd.models.config import ModelConfig
    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.program import Program

    Array = NDArray[Any]

CONTEXT = 320
CHUNK = 60
OPTIONS = ProgramOptions(
    context=CONTEXT, precision="f32", prefill_tokens=(CHUNK,), decode_batches=(1,)
)


def config_of(source: WeightSource, architecture: str) -> ModelConfig:
    """The configuration in a folder or a GGUF file."""
    family, metadata = ARCHITECTURES[architecture], source.metadata()
    shapes = {name: source.shape(name) for name in source.names()}
    config: ModelConfig = (
        family.from_gguf(metadata, shapes, source.read)
        if source.format == "gguf"
        else family.from_hugging_face(metadata)
    )
    return config


def parameters_of(
    source: WeightSource, architecture: str, config: ModelConfig, folder: Path
) -> tuple[Program, Mapping[str, Array]]:
    """The f32 program and its parameters, as a bake writes them to a file in `folder`."""
    family, archive = ARCHITECTURES[architecture], folder / "params.irpa"
    program = family.program(config, replace(OPTIONS, reads_rows=config.image is not None))
    write_parameters(source, locate(source, family, config, program), archive, lambda _: None)
    return program, stored_parameters(program.parameters, archive)


def logits(
    source: WeightSource, architecture: str, folder: Path, tokens: Sequence[int]
) -> NDArray[np.float32]:
    """The logits after each token, f32 (T, V); `folder` is for a temporary file."""
    config = config_of(source, architecture).for_context(CONTEXT)
    program, parameters = parameters_of(source, architecture, config, folder)
    model = ARCHITECTURES[architecture].model(config)
    by_layer = Counter(int(spec.name.split(".")[1]) for spec in program.caches)
    counts = [by_layer[layer] for layer in range(config.cached_layers)]

    def step(tokens: Tensor, start: Tensor, *slots: Tensor) -> tuple[Tensor, ...]:
        remaining = iter(slots)
        buffers = [[tuple(itertools.islice(remaining, count))] for count in counts]
        x, caches = read(model, tokens, [start], buffers, CONTEXT)
        return model.logits(x), *(part for cache in caches for part in cache.buffers[0])

    inputs = {"tokens": TensorType((CHUNK,), DType.I32), "start": TensorType((1,), DType.I32)}
    inputs |= cache_types(program.caches)
    graph = trace("logits", step, inputs, parameters=model.parameters())
    (graph,) = optimized([graph], model.parameters(), storage=lambda _: F32, kernels=False).graphs
    caches: list[Array] = empty_caches(program.caches)
    rows = []
    for start in range(0, len(tokens), CHUNK):
        chunk = np.array(tokens[start : start + CHUNK], np.int32)
        new, *caches = evaluate(graph, [chunk, np.array([start], np.int32), *caches], parameters)
        rows.append(new)
    return np.concatenate(rows)
