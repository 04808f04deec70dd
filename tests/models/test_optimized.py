"""What the rules of models/optimized.py do to the graphs of every registered architecture."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.models import optimized as optimization
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.dsl.composite import inlined
from hearthd.models.dsl.graph import Apply, Graph
from hearthd.models.dsl.rewrites.kernel_rules import KERNEL_RULES
from hearthd.models.program import ProgramOptions
from tests.by_day import each_architecture
from tests.models.fusion_counts import RECURRENCES, expected
from tests.models.numpy_device import Device
from tests.models.tiny_configs import LAYERS, tiny

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

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
INT4_RULES = ("int4_cache_attention", "write_packed_rows", "write_packed_scales", "rotate_heads")


@functools.cache
def fused_program(architecture: str) -> Program:
    return program_of(architecture)


def program_of(architecture: str, options: ProgramOptions = OPTIONS, **changes: Any) -> Program:
    return ARCHITECTURES[architecture].program(tiny(architecture, **changes), options)


@pytest.mark.parametrize("architecture", each_architecture())
def test_every_fusion_matches_in_every_architecture(architecture: str) -> None:
    program = fused_program(architecture)
    assert len(program.fusions) == len(program.entry_points) == 5
    for point, counts in program.fusions.items():
        assert dict(counts) == expected(architecture, point, LAYERS), point


def expected_of(kv_cache: KvCache | None, architecture: str, point: str) -> dict[str, int]:
    """The rules that apply in an entry point with caches of these values."""
    counts = expected(architecture, point, LAYERS)
    rules = {"int8": INT8_RULES, "int4": INT4_RULES[:3]}.get(kv_cache or "")
    if rules is None:
        return counts
    attention, rows = counts.pop("cached_attention"), counts.pop("write_f16_rows")
    counts |= dict(zip(rules, (attention, rows, rows), strict=True))
    return counts | ({"rotate_heads": LAYERS} if kv_cache == "int4" else {})


@pytest.mark.parametrize("architecture", TWO)
@pytest.mark.parametrize("kv_cache", ["int8", "int4"])
def test_caches_of_integers_have_kernels(kv_cache: KvCache, architecture: str) -> None:
    program = program_of(architecture, replace(OPTIONS, kv_cache=kv_cache))
    for point in ("decode_1", "decode_2", "verify_4"):
        assert dict(program.fusions[point]) == expected_of(kv_cache, architecture, point)


# The entry points of towers, by architecture.
IMAGES = {
    "smolvlm": "image",
    "internvl": "image",
    "qwen35-images": "image_16",
    "qwen3vl-images": "image_16",
    "qwen25vl-images": "image_16",
    "qwen2vl-images": "image_16",
    "glm4v-images": "image_16",
    "glm4vmoe-images": "image_16",
    "glm-ocr": "image_16",
    "paddleocr-vl": "image_16",
    "minicpmv": "image_16",
    "lfm2-vl": "image_16",
    "mistral3-images": "image_16",
    "pixtral": "image_16",
    "llava": "image",
    "llava-next": "image",
    "granite-vision": "image",
    "lightonocr": "image_16",
    "gemma4-images": "image_16",
    "gemma4-sound": "sound_16",
    "voxtral": "sound_16",
    "ultravox": "sound_16",
    "qwen2audio": "sound_16",
    "qwen25omni": "sound_16",
}
TOWER_COUNTS: Mapping[str, Mapping[str, int]] = {
    "smolvlm": {"stacked_heads": 2, "matrix": 10, "full_attention": 2},
    "qwen3vl-images": {"matrix": 13, "rope": 4, "full_attention": 2},
    "qwen35-images": {"matrix": 11, "rope": 4, "full_attention": 2},
    "lfm2-vl": {"stacked_heads": 2, "matrix": 11, "full_attention": 2},
    "internvl": {"stacked_heads": 2, "matrix": 11, "full_attention": 2},
    "qwen2vl-images": {"stacked_heads": 2, "matrix": 11, "rope": 4, "full_attention": 2},
    "minicpmv": {"stacked_heads": 2, "matrix": 15, "full_attention": 3},
    "glm4v-images": {
        "matrix": 16,
        "add_norm": 6,
        "rope": 4,
        "full_attention": 2,
        "gated_silu": 3,
    },
    "paddleocr-vl": {"stacked_heads": 2, "matrix": 11, "rope": 4, "full_attention": 2},
    "glm-ocr": {
        "matrix": 16,
        "add_norm": 5,
        "norm_rope": 4,
        "full_attention": 2,
        "gated_silu": 3,
    },
    "glm4vmoe-images": {
        "matrix": 16,
        "add_norm": 6,
        "rope": 4,
        "full_attention": 2,
        "gated_silu": 3,
    },
    "qwen25vl-images": {
        "stacked_heads": 2,
        "matrix": 13,
        "full_attention": 1,
        "rope": 4,
        "gated_silu": 2,
        "add_norm": 4,
    },
    # Of two layers, the first one is read.
    "llava": {"stacked_heads": 1, "matrix": 7, "full_attention": 1},
    "llava-next": {"stacked_heads": 1, "matrix": 7, "full_attention": 1},
    "granite-vision": {"stacked_heads": 2, "matrix": 11, "full_attention": 2},
    "pixtral": {
        "stacked_heads": 2,
        "matrix": 13,
        "full_attention": 2,
        "rope": 4,
        "gated_silu": 2,
        "add_norm": 3,
    },
    "lightonocr": {
        "stacked_heads": 2,
        "matrix": 14,
        "full_attention": 2,
        "rope": 4,
        "gated_silu": 2,
        "add_norm": 4,
    },
    "mistral3-images": {
        "stacked_heads": 2,
        "matrix": 14,
        "full_attention": 2,
        "rope": 4,
        "gated_silu": 2,
        "add_norm": 4,
    },
    "gemma4-images": {
        "matrix": 16,
        "full_attention": 2,
        "rope": 8,
        "gated_gelu_tanh": 2,
        "residual_norm": 3,
        "add_norm": 1,
        "embedding": 2,
    },
    "gemma4-sound": {"matrix": 25, "add_norm": 6},
    "voxtral": {"stacked_heads": 2, "matrix": 12, "full_attention": 2},
    "ultravox": {"stacked_heads": 2, "matrix": 12, "full_attention": 2, "gated_silu": 1},
    "qwen2audio": {"stacked_heads": 2, "matrix": 11, "full_attention": 2},
    "qwen25omni": {"stacked_heads": 2, "matrix": 11, "full_attention": 2},
}


def op_names(graph: Graph) -> list[str]:
    return [node.origin.op.name for node in graph.nodes if isinstance(node.origin, Apply)]


@pytest.mark.nightly
@pytest.mark.parametrize("rule", dict.fromkeys(rule.name for rule in KERNEL_RULES))
def test_a_rule_that_stops_matching_is_seen(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    others = tuple(one for one in KERNEL_RULES if one.name != rule)
    monkeypatch.setattr(optimization, "KERNEL_RULES", others)
    kv_cache: KvCache | None = "int8" if rule in INT8_RULES else None
    kv_cache = "int4" if rule in INT4_RULES else kv_cache
    options = replace(OPTIONS, decode_batches=(1,), verify_tokens=(), kv_cache=kv_cache)

    def is_missing(architecture: str) -> bool:
        expected_ = TOWER_COUNTS[architecture]
        return rule in expected_ and tower(architecture, options).get(rule) != expected_[rule]

    def differs(architecture: str) -> bool:
        counts = program_of(architecture, options).fusions["decode_1"]
        return dict(counts) != expected_of(kv_cache, architecture, "decode_1")

    assert any(map(differs, (*TWO, *RECURRENCES, "gpt-oss"))) or any(map(is_missing, IMAGES))


def tower(architecture: str, options: ProgramOptions) -> Mapping[str, int]:
    """How often each rule applies in an entry point of a tower."""
    with_images = replace(options, reads_rows=True, image_rows=(16,), sound_rows=(16,))
    return program_of(architecture, with_images).fusions[IMAGES[architecture]]


@pytest.mark.parametrize("architecture", IMAGES)
def test_a_tower_has_kernels(architecture: str) -> None:
    assert dict(tower(architecture, OPTIONS)) == TOWER_COUNTS[architecture]


@pytest.mark.parametrize("architecture", each_architecture())
def test_graphs_hold_no_composites(architecture: str) -> None:
    for graph in fused_program(architecture).graphs:
        assert inlined(graph) is graph


@pytest.mark.parametrize("architecture", TWO)
def test_f32_stacks_heads_and_uses_no_kernels(architecture: str) -> None:
    program = program_of(architecture, replace(OPTIONS, precision="f32"))
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


@pytest.mark.parametrize("architecture", each_architecture())
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


@pytest.mark.parametrize(
    ("kv_heads", "precision", "count"), [(1, "int8-g32", 1), (4, "int8-g32", 3), (1, "f32", 3)]
)
def test_matrices_whose_blocks_of_rows_are_not_whole_stay_apart(
    kv_heads: int, precision: str, count: int
) -> None:
    """Here keys of 40 rows: each matrix is written on its own, with rows added to fill a block."""
    options = replace(OPTIONS, precision=precision, decode_batches=(1,), verify_tokens=())
    program = program_of("llama", options, heads=4, kv_heads=kv_heads, head_dim=40)
    (keys,) = [one for one in program.weights if "layers.0.self_attn.k_proj.weight" in one.sources]
    assert len(keys.sources) == count
    apart = [keys.storage.arrays(*shape).values() for shape in keys.sources.values()]
    assert sum(array.nbytes for arrays in apart for array in arrays) == sum(
        array.type.nbytes for array in keys.parameters.values()
    )


# What files of an architecture have, and no entry point reads: a layer, and what follows it.
UNREAD = dict.fromkeys(("llava", "llava-next"), ("tower.layers.1.", "tower.post_layernorm."))


@pytest.mark.parametrize("architecture", each_architecture())
def test_every_parameter_of_a_model_is_stored_once(architecture: str) -> None:
    config, program = tiny(architecture), fused_program(architecture)
    if config.image or config.sound:
        sound = (4,) if config.sound else ()
        options = replace(OPTIONS, reads_rows=True, image_rows=(4,), sound_rows=sound)
        program = program_of(architecture, options)
    stored = [name for one in program.weights for name in one.sources]
    parameters = ARCHITECTURES[architecture].model(config).parameters()
    unread = UNREAD.get(architecture, ())
    assert sorted(stored) == sorted(name for name in parameters if not name.startswith(unread))
    for graph in program.graphs:
        assert graph.parameters.keys() <= program.parameters.keys()
