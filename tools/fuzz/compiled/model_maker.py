"""Random small models of every architecture, encoder and of the GRU, with weights and arguments.

The configurations come from the fields of an architecture's configuration, so that a new
architecture is covered without a line here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import zlib
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

from hearthd.models.catalog import ARCHITECTURES, ENCODERS
from hearthd.models.config import ConfigError, ModelConfig
from hearthd.models.decoder.experts import ExpertsConfig
from hearthd.models.decoder.gemma3n_config import Gemma3nConfig
from hearthd.models.decoder.latent_attention import LatentConfig
from hearthd.models.decoder.recurrent.rwkv7 import Rwkv7Config
from hearthd.models.dsl.fused.two_part_head import ALL
from hearthd.models.dsl.graph import Input
from hearthd.models.dsl.storage import STORAGES
from hearthd.models.dsl.types import DType, TypeRuleError
from hearthd.models.encoder.encoder_entry_points import EncoderOptions
from hearthd.models.families import gru
from hearthd.models.families.gru import GruConfig
from hearthd.models.families.nemotron_h import ATTENTION, MAMBA, MLP
from hearthd.models.families.nemotron_h_moe import EXPERTS
from hearthd.models.precision import PRECISIONS
from hearthd.models.program import ArraysProgram, ProgramOptions
from hearthd.models.towers.tower_config import GridConfig
from tests.models.numpy_device import random_arrays, random_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hearthd.models.dsl.graph import Graph
    from hearthd.models.program import Program

    Array = NDArray[Any]

# The kernels of these precisions need rows in sixteens, columns in 32s and heads of 64.
_IN_GROUPS = frozenset(name for name, precision in PRECISIONS.items() if precision.kernels)
_EPSILON = 1e-5
# What the models of seeds are, in turn.
KINDS = (*ARCHITECTURES, *ENCODERS, "gru")
_ATTEMPTS = 1000


@dataclass(frozen=True)
class Model:
    """Some entry points of a model, the arguments of each, and the weights by name.

    text       the configuration and the options
    precision  a name of PRECISIONS
    """

    text: str
    precision: str
    graphs: tuple[Graph, ...]
    arguments: tuple[tuple[Array, ...], ...]
    weights: dict[str, Array]


def make_model(seed: int) -> Model:
    """The model of a seed: an architecture in turn, or the GRU."""
    random = Random(seed)
    name = KINDS[seed % len(KINDS)]
    if name == "gru":
        return _gru_model(random)
    precision = random.choice(sorted(PRECISIONS))
    config = make_config(name, precision, random)
    rng = np.random.default_rng(seed)
    if name in ENCODERS:
        return _encoder_model(name, config, precision, random, rng)
    options = _options(precision, random, config)
    program = _with_storages(name, config, options, random)
    points = random.sample(program.entry_points, min(3, len(program.entry_points)))
    arguments = tuple(_arguments(graph, point, config, options, rng) for point, graph in points)
    graphs = tuple(graph for _, graph in points)
    stored = sorted({weight.storage.name for weight in program.weights})
    text = f"{name} {precision} {stored} {[point.name for point, _ in points]} {options} {config}"
    return Model(text, precision, graphs, arguments, random_weights(program))


def _with_storages(
    name: str, config: ModelConfig, options: ProgramOptions, random: Random
) -> Program:
    """The program; of `native`, with matrices of layers in any form that they have together."""
    family = ARCHITECTURES[name]
    program = family.program(config, options)
    if not PRECISIONS[options.precision].native:
        return program
    forms = [storage.name for storage in STORAGES.values() if storage.format]
    names = [
        name
        for name, tensor in family.model(config).parameters().items()
        if name.startswith("layers.") and tensor.type.rank > 1 and random.random() < 0.5
    ]
    storages = {name: random.choice(forms) for name in names}
    with contextlib.suppress(TypeRuleError):  # matrices of experts share a form
        return family.program(config, dataclasses.replace(options, storages=storages))
    return program


def _encoder_model(
    name: str, config: ModelConfig, precision: str, random: Random, rng: Any
) -> Model:
    """One or two lengths of texts, which end anywhere."""
    lengths = {random.randint(2, 33) for _ in range(random.randint(1, 2))}
    options = EncoderOptions(
        precision=precision, lengths=tuple(sorted(lengths)), rows=random.choice((1, 16, 64))
    )
    program = ENCODERS[name].program(config, options)
    limits = {"tokens": config.vocab_size, "types": getattr(config, "token_types", 1)}
    arguments = tuple(
        tuple(
            rng.integers(0, limits[tensor.origin.name], tensor.shape).astype(np.int32)
            if tensor.origin.name in limits
            else rng.integers(1, graph.inputs[0].shape[1] + 1, tensor.shape).astype(np.int32)
            for tensor in graph.inputs
            if isinstance(tensor.origin, Input)
        )
        for graph in program.graphs
    )
    weights = random_arrays(program.parameters, config.hidden)
    return Model(f"{name} {options} {config}", precision, program.graphs, arguments, weights)


def make_config(
    name: str, precision: str, random: Random, heads: int = 0, kv_heads: int = 0
) -> Any:
    """A random configuration of an architecture, with these numbers of heads; 0: any."""
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(ConfigError):
            return _config(name, precision, random, heads, kv_heads)
    raise AssertionError(f"{name}: no valid configuration in {_ATTEMPTS} attempts")


def _special_sizes(
    config_type: type[Any], sizes: dict[str, Any], width: int, wide: int, random: Random
) -> dict[str, Any]:
    """Sizes that depend on each other in architectures of one kind."""
    if issubclass(config_type, LatentConfig):
        latent, rotary = width * random.randint(1, wide), max(2, width)
        return {
            "latent": latent, "rotary_width": rotary, "head_dim": latent + rotary, "kv_heads": 1,
            "key_width": width * random.randint(1, 3),
            "query_rank": random.choice((None, width * random.randint(1, wide))),
        }  # fmt: skip
    if "key_heads" in config_type.by_layer:
        by_layer = {"query_heads": sizes["heads"], "key_heads": sizes["kv_heads"]}
        return {name: (count,) * sizes["layers"] for name, count in by_layer.items()}
    if issubclass(config_type, Rwkv7Config):
        return {"head_dim": 16 * random.randint(1, 4)}
    if issubclass(config_type, Gemma3nConfig):
        return {
            "laurel_rank": width * random.randint(1, wide),
            "streams": random.randint(2, 3),
            "deviations": tuple(random.choice((None, 1.0)) for _ in range(sizes["layers"])),
        }
    if issubclass(config_type, GridConfig):
        heads, pairs = random.randint(1, 3), sizes["head_dim"] // 2
        fields = config_type.__dataclass_fields__
        if "rotary_width" in fields:
            pairs = random.randint(1, pairs)
        by_layer = {"tower_layers": sizes["layers"]} if "attends_to_all" in fields else {}
        return by_layer | {
            "tower_heads": heads,
            "tower_hidden": 4 * heads * random.randint(1, 3),
            "tower_head_dim": 4 * random.randint(1, 3),
            "rotary_width": 2 * pairs,
            "rope_sections": (pairs - pairs // 3 * 2, pairs // 3, pairs // 3),
        }
    return {}


def _config(name: str, precision: str, random: Random, heads: int, kv_heads: int) -> Any:
    """Sizes by their names, other fields by their types; raises ConfigError."""
    config_type = ARCHITECTURES[name].config if name in ARCHITECTURES else ENCODERS[name].config
    heads = heads or random.randint(1, 9)
    kv_heads = kv_heads or random.choice([n for n in range(1, heads + 1) if heads % n == 0])
    in_groups = precision in _IN_GROUPS
    width, wide = (32, 3) if in_groups else (1, 40)
    layers = random.choice((1, 2, 2, 3))
    head_dim = 64 if in_groups else random.choice((2, 4, 6, 8, 10, 14, 16, 18, 32))
    feed_forward = EXPERTS if issubclass(config_type, ExpertsConfig) else MLP
    sizes = {
        "layers": layers,
        "hidden": heads * head_dim if name in ENCODERS else width * random.randint(1, wide),
        "ffn": width * random.randint(1, wide),
        "expert_ffn": width * random.randint(1, wide),
        "shared_ffn": width * random.randint(1, wide),
        "latent": random.choice((None, width * random.randint(1, wide))),
        "heads": heads,
        "kv_heads": heads if name in ENCODERS else kv_heads,
        "head_dim": head_dim,
        "pooling": random.choice(config_type.poolings),
        "dense": tuple(width * random.randint(1, wide) for _ in range(random.randint(0, 2))),
        "ssm_width": 32 if in_groups else random.randint(1, 3),
        "ssm_inner": 32 * random.randint(1, wide) if in_groups else 16 * random.randint(1, 5),
        "delta_width": 32 if in_groups else 16 * random.randint(1, 2),
        "value_width": 32 if in_groups else random.randint(1, 3),
        "experts": 16 * random.randint(1, 2) if in_groups else random.randint(1, 5),
        "max_context": 64,
        "vocab_size": 16 * random.randint(1, 6) if in_groups else random.randint(3, 90),
        "norm_eps": _EPSILON,
        "ffns": tuple(width * random.randint(1, wide) for _ in range(layers)),
        "local_head_dim": head_dim,
        "local_heads": heads,
        "local_rotary_width": 2,
        "layer_embedding": width * random.randint(1, wide),
        "caching_layers": random.randint(1, layers),
        "window": random.randint(1, 20),
        "windows": tuple(random.choice((None, random.randint(1, 20))) for _ in range(layers)),
        "loops": 1,
        "tower_activation": "gelu",
        "sound_mels": 8,
        "sound_channels": (8, 2),
        "kinds": tuple(
            random.choice((MAMBA, ATTENTION, feed_forward)[: 2 + (n > 0)]) for n in range(layers)
        ),
    }
    sizes |= _special_sizes(config_type, sizes, width, wide, random)
    return config_type(**_fields(config_type, sizes, layers, random))


def _fields(
    config_type: type[Any], sizes: dict[str, Any], layers: int, random: Random
) -> dict[str, Any]:
    """The fields of a config: values from `sizes` by name, others by type."""
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(config_type):
        annotation = str(field.type)
        if field.name in sizes:
            fields[field.name] = sizes[field.name]
        elif "tuple[bool" in annotation:  # for each layer; every model attends in one
            chosen = [random.random() < 0.5 for _ in range(layers)]
            fields[field.name] = (*chosen[:-1], chosen[-1] or field.name == "attends")
        elif "tuple[float | None" in annotation and field.default is dataclasses.MISSING:
            fields[field.name] = tuple(random.choice((None, 100.0)) for _ in range(layers))
        elif "tuple" in annotation:
            fields[field.name] = () if field.default is dataclasses.MISSING else field.default
        elif "bool" in annotation:
            fields[field.name] = random.random() < 0.5
        elif "base" in field.name:
            fields[field.name] = random.choice((100.0, 10_000.0))
        elif "int" in annotation:
            fields[field.name] = random.randint(1, 3)
        elif "float" in annotation:
            fields[field.name] = random.choice((0.5, 1.0, 2.0))
    return fields


def _options(precision: str, random: Random, config: ModelConfig) -> ProgramOptions:
    """At most `max_context` positions, smaller chunks, and batches of any size."""
    chunk = random.choice((1, 2, 3, 5, 8, 9, 16, 17))
    prefills = {chunk, random.randint(1, chunk)}
    guesses = range(2, min(8, chunk) + 1)
    return ProgramOptions(
        context=random.randint(max(2, chunk), config.max_context),
        precision=precision,
        prefill_tokens=tuple(sorted(prefills)),
        decode_batches=(1, random.randint(2, 5)),
        verify_tokens=(random.choice(guesses),) if guesses else (),
        pair_tokens=random.choice((0, 2)) if guesses else 0,
    )


def _arguments(
    graph: Graph, point: Any, config: ModelConfig, options: ProgramOptions, rng: Any
) -> tuple[Array, ...]:
    """Tokens, positions, margins or counts as bundle has them, and caches full of rows."""
    last = max(0, min(point.keys, options.context) - point.tokens)
    numbers: dict[str, tuple[int, int]] = {
        "tokens": (0, config.vocab_size),
        "start": (0, last + 1),
        "positions": (0, last + 1),
        "count": (1, point.tokens + 1),
        "margin": (ALL, ALL + 1),
    }
    arrays = []
    for tensor in graph.inputs:
        assert isinstance(tensor.origin, Input)
        if tensor.dtype is DType.I32:
            array = rng.integers(*numbers[tensor.origin.name], tensor.shape)
        else:
            array = rng.normal(size=tensor.shape)
        arrays.append(array.astype(tensor.dtype.numpy))
    return tuple(arrays)


def _gru_model(random: Random) -> Model:
    for _ in range(_ATTEMPTS):
        config: dict[str, Any] = {
            "inputs": random.randint(1, 17),
            "hidden": random.randint(1, 17),
            "layers": random.choice((1, 1, 2)),
            "bidirectional": random.random() < 0.5,
            "bias": random.random() < 0.5,
            "steps": random.choice((1, 2, 3, 5, 9, 17)),
            "batch": random.randint(1, 9),
            "batch_first": random.random() < 0.5,
            "form": random.choice(gru.FORMS),
        }
        with contextlib.suppress(ConfigError):
            return _gru_entry_points(config, gru.program(GruConfig(**config)))
    raise AssertionError(f"gru: no valid configuration in {_ATTEMPTS} attempts")


def _gru_entry_points(config: dict[str, Any], program: ArraysProgram) -> Model:
    rng = np.random.default_rng(zlib.crc32(str(config).encode()))
    arguments = tuple(
        tuple(rng.normal(size=tensor.shape).astype(np.float32) for tensor in graph.inputs)
        for graph in program.graphs
    )
    weights = {
        name: (rng.normal(size=type_.shape) / np.sqrt(type_.shape[-1])).astype(np.float32)
        for name, type_ in program.parameters.items()
    }
    return Model(f"gru {config}", "f32", program.graphs, arguments, weights)
