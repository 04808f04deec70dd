"""What the rules of models/optimized.py do to the graphs of every registered architecture."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.models import optimized as optimization
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.decoder.experts import ExpertsConfig
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.composite import inlined
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.graph import Apply, Graph, Input, Tensor, make_graph
from hearthd.models.dsl.kernel_rules import KERNEL_RULES
from hearthd.models.dsl.rewrite import Node, Part, Rule, Variable, rewritten
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, TensorType
from hearthd.models.program import ProgramOptions
from tests.models.numpy_device import Device
from tests.models.tiny_configs import LAYERS, tiny

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from hearthd.models.dsl.rewrite import Pattern
    from hearthd.models.precision import KvCache
    from hearthd.models.program import Program

    Array = NDArray[Any]

OPTIONS = ProgramOptions(
    context=64,
    precision="int8-g32",
    prefill_tokens=(8,),
    decode_batches=(1, 2),
    verify_tokens=(4,),
)
# Those that cover every rule, for tests of what all architectures have in common.
TWO = ("gemma3", "llama")
INT8_RULES = ("int8_cache_attention", "write_int8_rows", "write_row_scales")
CACHE_RULES = ("write_f16_rows", *INT8_RULES)


@functools.cache
def fused_program(architecture: str) -> Program:
    return program_of(architecture)


def program_of(architecture: str, options: ProgramOptions = OPTIONS, **changes: Any) -> Program:
    return ARCHITECTURES[architecture].program(tiny(architecture, **changes), options)


@dataclass(frozen=True, kw_only=True)
class Counts:
    """How often rules apply in one layer.

    norms      the rule for the residual stream, and how often: 0.0 for the last layer alone
    rotations  the rule for rotation
    products   matrices; `needed` of them give the keys and values of a prefill's last layer
    stacked    whether queries, keys and values are one product because of their heads
    capped     no rule for soft caps: attention stays plain
    whole_head no rule for soft caps: the head is computed whole
    gate       the rule for the activation of the feed-forward layer, and how often
    beside     tables of embeddings, and matrices, that each token needs beside the layers'
    """

    norms: tuple[str, int] = ("add_norm", 2)
    rotations: str = "rope"
    products: int = 5
    needed: int = 1
    stacked: bool = True
    capped: bool = False
    whole_head: bool = False
    gate: tuple[str, int] = ("gated_silu", 1)
    beside: tuple[int, int] = (1, 0)


GELU = ("gated_gelu_tanh", 1)
COUNTS = {
    "apertus": Counts(rotations="norm_rope", products=4, gate=("gated_silu", 0)),
    "exaone4": Counts(norms=("residual_norm", 0), rotations="norm_rope"),
    "gemma": Counts(gate=GELU),
    "gemma2": Counts(norms=("residual_norm", 2), capped=True, whole_head=True, gate=GELU),
    "gemma3": Counts(norms=("residual_norm", 2), rotations="norm_rope", gate=GELU),
    "gemma4": Counts(
        norms=("residual_norm", 1),
        rotations="norm_rope",
        products=7,
        whole_head=True,
        beside=(2, 1),
        gate=("gated_gelu_tanh", 2),
    ),
    "gemma4-moe": Counts(
        norms=("residual_norm", 2), rotations="norm_rope", whole_head=True, gate=GELU
    ),
    "glm4": Counts(norms=("residual_norm", 2), products=4),
    "lfm2": Counts(rotations="norm_rope"),
    "lfm2moe": Counts(rotations="norm_rope"),
    "olmo2": Counts(norms=("residual_norm", 0), products=7, needed=2, stacked=False),
    "olmoe": Counts(products=7, needed=2, stacked=False),
    "phi3": Counts(products=4, stacked=False),
    "qwen3": Counts(rotations="norm_rope"),
    "qwen3moe": Counts(rotations="norm_rope"),
}


def expected(architecture: str, point: str, layers: int) -> dict[str, int]:
    """How often each rule applies: a fact of the architecture, and of what the entry point needs.

    A prefill needs of its last layer with keys and values those alone.
    """
    sequences, tokens = {"decode_2": (2, 1), "verify_4": (1, 4)}.get(point, (1, 1))
    shared = 1 if architecture == "gemma4" else 0  # its last layer here
    partial = 1 if point.startswith("prefill") else 0
    whole = layers - shared - 1 if partial else layers
    per_layer = COUNTS.get(architecture, Counts())
    norm, norms = per_layer.norms
    gate, gates = per_layer.gate
    tables, matrices = per_layer.beside
    no_positions = 1 if architecture == "smollm3" else 0  # its last layer here
    convolutions = 1 if architecture in ("lfm2", "lfm2moe") else 0  # its first layer here
    config = tiny(architecture)
    routed = sum(config.routed[:whole]) if isinstance(config, ExpertsConfig) else 0
    beside_experts = getattr(config, "shared_ffn", None) or architecture == "gemma4-moe"
    shared_mlps = routed if beside_experts else 0
    counts = {
        "stacked_heads": layers - convolutions - shared if per_layer.stacked else 0,
        "matrix": (
            per_layer.products * whole
            + per_layer.needed * partial
            - 3 * (routed - shared_mlps)
            + matrices
        ),
        "experts": 3 * routed,
        "embedding": tables,
        # Without norms before the sublayers, the model's last norm alone follows a sum.
        norm: norms * whole if norms else int(whole == layers),
        per_layer.rotations: (
            2 * (whole - convolutions)
            + (partial or -shared)
            - no_positions * (2 if whole == layers else 1)
        ),
        gate: gates * whole + shared_mlps,
        "write_f16_rows": 2 * (layers - shared - convolutions) * sequences,
        "cached_attention": (
            0 if per_layer.capped else (whole - convolutions) * sequences * tokens
        ),
    }
    if not ("prefill" in point or "embed" in point):
        head = "matrix" if per_layer.whole_head else "two_part_head"
        counts[head] = counts.get(head, 0) + 1
    return {rule: count for rule, count in counts.items() if count}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_fusion_matches_in_every_architecture(architecture: str) -> None:
    program = fused_program(architecture)
    assert len(program.fusions) == len(program.entry_points) == 6
    for point, counts in program.fusions.items():
        assert dict(counts) == expected(architecture, point, LAYERS), point


def expected_int8(architecture: str, point: str) -> dict[str, int]:
    """The rules that apply in an entry point with caches of int8."""
    counts = expected(architecture, point, LAYERS)
    attention, rows = counts.pop("cached_attention"), counts.pop("write_f16_rows")
    new = {"int8_cache_attention": attention, "write_int8_rows": rows, "write_row_scales": rows}
    return {**counts, **new}


@pytest.mark.parametrize("architecture", TWO)
def test_int8_caches_have_kernels(architecture: str) -> None:
    program = program_of(architecture, replace(OPTIONS, kv_cache="int8"))
    for point in ("decode_1", "decode_2", "verify_4"):
        assert dict(program.fusions[point]) == expected_int8(architecture, point)


def op_names(graph: Graph) -> list[str]:
    return [node.origin.op.name for node in graph.nodes if isinstance(node.origin, Apply)]


@pytest.mark.parametrize("rule", [rule.name for rule in KERNEL_RULES])
def test_a_rule_that_stops_matching_is_seen(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    others = tuple(one for one in KERNEL_RULES if one.name != rule)
    monkeypatch.setattr(optimization, "KERNEL_RULES", others)
    kv_cache: KvCache | None = "int8" if rule in INT8_RULES else None
    options = replace(OPTIONS, decode_batches=(1,), verify_tokens=(), kv_cache=kv_cache)

    def differs(architecture: str) -> bool:
        whole = expected_int8 if kv_cache else functools.partial(expected, layers=LAYERS)
        counts = program_of(architecture, options).fusions["decode_1"]
        return dict(counts) != whole(architecture, "decode_1")

    assert any(map(differs, TWO))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_graphs_hold_no_composites(architecture: str) -> None:
    for graph in fused_program(architecture).graphs:
        assert inlined(graph) is graph


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("architecture", TWO)
def test_plain_precisions_stack_heads_and_use_no_kernels(architecture: str, precision: str) -> None:
    program = program_of(architecture, replace(OPTIONS, precision=precision))
    for point, counts in program.fusions.items():
        assert counts["stacked_heads"] == LAYERS, point
        assert not {rule.name for rule in KERNEL_RULES} & counts.keys()


@pytest.mark.parametrize("architecture", TWO)
def test_shapes_that_a_kernel_cannot_take_stay_plain(architecture: str) -> None:
    """Attention takes heads of a multiple of 64; norms and RoPE go on."""
    program = program_of(architecture, head_dim=32)
    counts = program.fusions["decode_1"]
    counts_without = expected(architecture, "decode_1", LAYERS)
    counts_without.pop("cached_attention", None)
    assert dict(counts) == counts_without
    device = Device(program)
    assert np.isfinite(device.logits_after([1, 2, 3])).all()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_fused_programs_compute_what_plain_ones_do(
    architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In NumPy, on the same integers: rounding of another order is all that may differ."""
    fused = Device(fused_program(architecture))
    monkeypatch.setattr(optimization, "KERNEL_RULES", ())
    plain = Device(program_of(architecture))
    tokens = [5, 9, 33, 2, 60, 17, 41, 8, 8, 1, 30]
    assert plain.weights.keys() == fused.weights.keys()
    difference = np.abs(fused.logits_after(tokens) - plain.logits_after(tokens))
    assert difference.max() < 1e-4


# --- queries, keys and values


def test_stacked_matrices_say_what_they_are_made_of() -> None:
    program = program_of("gemma3")
    name = "layers.1.self_attn.q_proj+k_proj+v_proj"
    (weight,) = [one for one in program.weights if f"{name}.weight" in one.parameters]
    assert list(weight.parameters) == [f"{name}.weight", f"{name}.scale"]
    assert weight.sources == {
        f"layers.1.self_attn.{part}_proj.weight": (rows, 64)
        for part, rows in {"q": 256, "k": 128, "v": 128}.items()
    }
    rows = [(one.start, one.stop) for one in weight.rows().values()]
    assert rows == [(0, 256), (256, 384), (384, 512)]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_parameter_of_a_model_is_stored_once(architecture: str) -> None:
    config, program = tiny(architecture), fused_program(architecture)
    model = ARCHITECTURES[architecture].model(config)
    stored = [name for one in program.weights for name in one.sources]
    assert sorted(stored) == sorted(model.parameters())
    for graph in program.graphs:
        assert graph.parameters.keys() <= program.parameters.keys()


# --- the rules themselves


def rule_graphs(rule: Rule) -> tuple[Graph, Graph]:
    """The rule's pattern as a graph of its own, and that graph rewritten by the rule."""
    rows, heads, width = 3, 4, 64
    shapes: Mapping[str, tuple[int, ...]] = {
        "h": (rows, width), "y": (rows, width), "after": (width,), "before": (width,),
        "x": (rows, heads, width), "weight": (width,),
        "cosine": (rows, width // 2), "sine": (rows, width // 2),
        "query": (rows, heads, width), "key": (16, 2 * width), "value": (16, 2 * width),
        "key_scale": (16, 2), "value_scale": (16, 2), "start": (1,), "places": (rows,),
        "cache": (16, heads if rule.name == "write_row_scales" else width),
    }  # fmt: skip
    dtypes = {"start": DType.I32, "places": DType.I32}
    if rule.name in INT8_RULES:
        shapes = {**shapes, "h": (rows, heads, width // heads)}
        dtypes |= dict.fromkeys(("key", "value"), DType.I8)
    if rule.name == "write_int8_rows":
        dtypes["cache"] = DType.I8
    if rule.name == "write_f16_rows":
        dtypes["cache"], shapes = DType.F16, {**shapes, "cache": (16, 2 * width)}
    attrs = {"eps": 1e-3, "keys": 12, "window": 5, "scale": 0.2, "cap": None}
    inputs: dict[str, Tensor] = {}
    made: dict[int, Tensor] = {}

    def void(name: str) -> Tensor:
        tensor_type = TensorType(shapes[name], dtypes.get(name, DType.F32))
        return inputs.setdefault(name, Tensor(tensor_type, Input(name)))

    def build(pattern: Pattern) -> Tensor:
        match pattern:
            case Variable(name):
                return void(name)
            case Part():
                return f.narrow(void(pattern.name), 1, 1, 3)
            case Node():
                if id(pattern) not in made:
                    attributes = {key: attrs[name] for key, name in pattern.attrs.items()}
                    made[id(pattern)] = pattern.op(*map(build, pattern.inputs), **attributes)
                return made[id(pattern)]

    outputs = tuple(map(build, rule.pattern))
    graph = make_graph(rule.name, tuple(inputs.values()), outputs, {}, {})
    result, counts, _ = rewritten(graph, (rule,))
    assert counts == {rule.name: 1}
    return graph, result


@pytest.mark.parametrize("rule", KERNEL_RULES, ids=lambda rule: rule.name)
def test_a_rule_computes_what_it_replaces(rule: Rule) -> None:
    graph, result = rule_graphs(rule)
    assert rule.name in op_names(result)
    rng = np.random.default_rng(0)
    values: Mapping[DType, Callable[[tuple[int, ...]], NDArray[Any]]] = {
        DType.I32: lambda shape: 6 + np.arange(*shape),
        DType.I8: lambda shape: rng.integers(-127, 128, shape),
        DType.F16: lambda shape: rng.normal(size=shape),
        DType.F32: lambda shape: rng.normal(size=shape),
    }
    arrays = [values[one.dtype](one.shape).astype(one.dtype.numpy) for one in graph.inputs]
    for new, old in zip(evaluate(result, arrays, {}), evaluate(graph, arrays, {}), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-6)


def chain(x: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """A norm after an add, both of which are read from outside."""
    total = x + y
    return f.rms_norm(total, weight, eps=1e-3), total


def rewritten_chain(function: Callable[..., tuple[Tensor, ...]]) -> list[str]:
    row, vector = TensorType((2, 32), DType.F32), TensorType((32,), DType.F32)
    graph = trace("g", function, {"x": row, "y": row, "weight": vector})
    return op_names(rewritten(graph, KERNEL_RULES)[0])


def test_a_sum_that_others_read_comes_out_of_the_kernel_too() -> None:
    assert rewritten_chain(chain).count("add_norm") == 1
    assert "add" not in rewritten_chain(chain)


def test_an_inner_node_that_others_read_is_not_fused_away() -> None:
    def normed_is_read(h: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        normed = f.rms_norm(y, weight, eps=1e-3)
        return f.rms_norm(h + normed, weight, eps=1e-3), normed

    names = rewritten_chain(normed_is_read)
    assert "residual_norm" not in names
    assert names.count("rms_norm") == 1  # the other one is in add_norm
    assert names.count("add_norm") == 1


def test_norms_of_different_eps_are_not_fused() -> None:
    def different(h: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        return (f.rms_norm(h + f.rms_norm(y, weight, eps=1e-3), weight, eps=1e-6),)

    assert "residual_norm" not in rewritten_chain(different)


def test_a_slice_of_other_axes_is_read_as_a_tensor_of_its_own() -> None:
    def rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> tuple[Tensor, ...]:
        return (f.rope(ops.slice_(x, bounds=((1, 3, 1), (0, 2, 1), (0, 64, 1))), cosine, sine),)

    table = TensorType((2, 32), DType.F32)
    x = TensorType((4, 3, 64), DType.F32)
    graph = trace("g", rotated, {"x": x, "cosine": table, "sine": table})
    assert op_names(rewritten(graph, KERNEL_RULES)[0]) == ["slice", "rope"]
