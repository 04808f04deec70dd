"""A compiled program with the bundle ABI, small enough to be checked by hand.

With e_p = w[token at position p], the logits after position n are

    w . (sum of e_p for p <= n)  +  w . (sum of p * e_p for p <= n)

The first sum is over the rows of one cache (e_p), the second over another's (p * e_p).
The hidden state of position p is e_p.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import iree.compiler
import iree.runtime as rt
import numpy as np

from hearthd.bundle import (
    FORMAT,
    PARAMETER_SCOPE,
    PARAMETERS,
    VMFB,
    CacheSpec,
    EntryPoint,
    Footprint,
    LanguageManifest,
    SpecialTokens,
    Target,
    record_file,
    write_manifest,
)
from hearthd.runtime.system.cpu_features import this_machine
from tests.server.fakes import NOWHERE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

VOCAB, WIDTH, CONTEXT, SLOTS = 7, 3, 12, 4
ROWS = CONTEXT + 4  # a padded chunk may extend beyond the context
WEIGHTS = np.linspace(-1, 1, VOCAB * WIDTH, dtype=np.float32).reshape(VOCAB, WIDTH)
ENTRY_POINTS = (
    EntryPoint(name="prefill_4", kind="prefill", batch=1, tokens=4, keys=CONTEXT),
    EntryPoint(name="prefill_2", kind="prefill", batch=1, tokens=2, keys=CONTEXT),
    EntryPoint(name="embed_4", kind="embed", batch=1, tokens=4, keys=CONTEXT),
    EntryPoint(name="decode_1", kind="decode", batch=1, tokens=1, keys=CONTEXT),
    EntryPoint(name="decode_3", kind="decode", batch=3, tokens=1, keys=CONTEXT),
    EntryPoint(name="verify_3", kind="verify", batch=1, tokens=3, keys=CONTEXT),
)

_CACHE = f"tensor<{ROWS}x{WIDTH}xf32>"
_LOGITS = f"tensor<1x{VOCAB}xf32>"


def expected(tokens: Sequence[int]) -> NDArray[np.float32]:
    """The logits after these tokens, f32 (VOCAB,)."""
    rows = WEIGHTS[list(tokens)]
    positions = np.arange(len(tokens), dtype=np.float32)[:, None]
    total: NDArray[np.float32] = WEIGHTS @ (rows + positions * rows).sum(axis=0)
    return total


@functools.cache
def _program() -> bytes:
    """The compiled program: tests of many files need it, and compiling it takes seconds."""
    program: bytes = iree.compiler.compile_str(
        _module(),
        target_backends=["llvm-cpu"],
        extra_args=["--iree-llvmcpu-target-cpu=generic", "--iree-opt-level=O1"],
    )
    return program


def write_bundle(bundle: Path) -> LanguageManifest:
    """Write the program into a bundle without golden values."""
    bundle.mkdir()
    (bundle / VMFB).write_bytes(_program())
    rt.save_archive_file({"w": WEIGHTS}, bundle / PARAMETERS)
    manifest = LanguageManifest(
        format=FORMAT,
        architecture="tiny",
        config={"hidden": WIDTH},
        precision="f32",
        storages={},
        vocab_size=VOCAB,
        context=CONTEXT,
        slots=SLOTS,
        tolerance=1e-4,
        special_tokens=SpecialTokens(bos=None, eos=()),
        caches=tuple(
            CacheSpec(name=name, rows=ROWS, width=WIDTH, dtype="f32")
            for name in ("sums", "moments")
        ),
        entry_points=ENTRY_POINTS,
        target=Target(
            name="host", triple=f"{this_machine()}-linux-gnu", cpu="generic", features=()
        ),
        statistics={},
        provenance=NOWHERE,
        golden=(),
        footprint=Footprint(
            laid_out=WEIGHTS.nbytes,
            read=0,
            looked_up=WEIGHTS.nbytes,
            calls={point.name: 4 * VOCAB for point in ENTRY_POINTS},
        ),
        files=(record_file(bundle / VMFB), record_file(bundle / PARAMETERS)),
    )
    write_manifest(bundle, manifest)
    return manifest


def _module() -> str:
    functions = [_prefill(4), _prefill(2), _decode(1), _decode(3), _verify(3), _embed(4)]
    parameter = f'#flow.parameter.named<"{PARAMETER_SCOPE}"::"w">'
    return f"""
module @tiny {{
  util.global private @w = {parameter} : tensor<{VOCAB}x{WIDTH}xf32>
  {"".join(functions)}
}}
"""


def _prefill(length: int) -> str:
    return f"""
  func.func public @prefill_{length}(%tokens: tensor<{length}xi32>, %start: tensor<1xi32>,
      {_cache_arguments(1, 0)}) -> ({_CACHE}, {_CACHE}) {{
    {_read("", "%tokens", "%start", "%start", 0, length)}
    return %c0_0, %c1_0 : {_CACHE}, {_CACHE}
  }}
"""


def _embed(length: int) -> str:
    rows, hidden = f"tensor<{length}x{WIDTH}xf32>", f"tensor<{WIDTH}xf32>"
    index, flags = f"tensor<{length}x{WIDTH}xi32>", f"tensor<{length}x{WIDTH}xi1>"
    return f"""
  func.func public @embed_{length}(%tokens: tensor<{length}xi32>, %start: tensor<1xi32>,
      %count: tensor<1xi32>, {_cache_arguments(1, 1)}) -> ({hidden}, {_CACHE}, {_CACHE}) {{
    {_read("", "%tokens", "%start", "%start", 0, length)}
    %place = stablehlo.iota dim = 0 : {index}
    %end = stablehlo.broadcast_in_dim %count, dims = [0] : (tensor<1xi32>) -> {index}
    %real = stablehlo.compare LT, %place, %end : ({index}, {index}) -> {flags}
    %nothing = stablehlo.constant dense<0.0> : {rows}
    %kept = stablehlo.select %real, %rows, %nothing : {flags}, {rows}
    %total = stablehlo.reduce(%kept init: %f) applies stablehlo.add across dimensions = [0]
      : ({rows}, tensor<f32>) -> {hidden}
    return %total, %c0_0, %c1_0 : {hidden}, {_CACHE}, {_CACHE}
  }}
"""


def _decode(batch: int) -> str:
    types = ", ".join([f"tensor<{batch}x{VOCAB}xf32>"] + [_CACHE] * (2 * batch))
    caches = ", ".join(f"%c0_{b}, %c1_{b}" for b in range(batch))
    body = "".join(
        f"""
    %t{b} = stablehlo.slice %tokens [{b}:{b + 1}] : (tensor<{batch}xi32>) -> tensor<1xi32>
    %p{b} = stablehlo.slice %positions [{b}:{b + 1}] : (tensor<{batch}xi32>) -> tensor<1xi32>
    %one{b} = stablehlo.constant dense<1> : tensor<1xi32>
    %e{b} = stablehlo.add %p{b}, %one{b} : tensor<1xi32>
    {_read(str(b), f"%t{b}", f"%p{b}", f"%e{b}", b, 1)}
"""
        for b in range(batch)
    )
    rows = ", ".join(f"%logits{b}" for b in range(batch))
    row_types = ", ".join([_LOGITS] * batch)
    return f"""
  func.func public @decode_{batch}(%tokens: tensor<{batch}xi32>, %positions: tensor<{batch}xi32>,
      %exact: tensor<{batch}xi32>, {_cache_arguments(batch, 1)}) -> ({types}) {{
    {body}
    %all = stablehlo.concatenate {rows}, dim = 0 : ({row_types}) -> tensor<{batch}x{VOCAB}xf32>
    return %all, {caches} : {types}
  }}
"""


def _verify(length: int) -> str:
    types = f"tensor<{length}x{VOCAB}xf32>, {_CACHE}, {_CACHE}"
    logits_rows = "".join(
        f"""
    %ahead{i} = stablehlo.constant dense<{i + 1}> : tensor<1xi32>
    %end{i} = stablehlo.add %start, %ahead{i} : tensor<1xi32>
    {_logits(str(i), f"%end{i}", 0)}"""
        for i in range(length)
    )
    rows = ", ".join(f"%logits{i}" for i in range(length))
    row_types = ", ".join([_LOGITS] * length)
    return f"""
  func.func public @verify_{length}(%tokens: tensor<{length}xi32>, %start: tensor<1xi32>,
      %exact: tensor<1xi32>, {_cache_arguments(1, 1)}) -> ({types}) {{
    {_write("", "%tokens", "%start", 0, length)}
    {logits_rows}
    %all = stablehlo.concatenate {rows}, dim = 0 : ({row_types}) -> tensor<{length}x{VOCAB}xf32>
    return %all, %c0_0, %c1_0 : {types}
  }}
"""


def _cache_arguments(batch: int, first: int) -> str:
    """The caches of the slots; the first of them is returned as result `first`."""
    return ", ".join(
        f"%a{which}_{b}: {_CACHE} {{iree.abi.output = {first + 2 * b + which} : index}}"
        for b in range(batch)
        for which in range(2)
    )


def _read(tag: str, tokens: str, start: str, end: str, slot: int, length: int) -> str:
    """Write `length` rows into both caches of a slot and compute %logits<tag>."""
    return _write(tag, tokens, start, slot, length) + _logits(tag, end, slot)


def _write(tag: str, tokens: str, start: str, slot: int, length: int) -> str:
    """Write `length` rows into both caches of a slot."""
    rows = f"tensor<{length}x{WIDTH}xf32>"
    return f"""
    %w{tag} = util.global.load @w : tensor<{VOCAB}x{WIDTH}xf32>
    %rows{tag} = "stablehlo.gather"(%w{tag}, {tokens}) <{{
      dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0],
        start_index_map = [0], index_vector_dim = 1>,
      slice_sizes = array<i64: 1, {WIDTH}>
    }}> : (tensor<{VOCAB}x{WIDTH}xf32>, tensor<{length}xi32>) -> {rows}
    %s{tag} = stablehlo.reshape {start} : (tensor<1xi32>) -> tensor<i32>
    %zero{tag} = stablehlo.constant dense<0> : tensor<i32>
    %i{tag} = stablehlo.iota dim = 0 : {rows}
    %sb{tag} = stablehlo.broadcast_in_dim %s{tag}, dims = []
      : (tensor<i32>) -> tensor<{length}x{WIDTH}xi32>
    %sf{tag} = stablehlo.convert %sb{tag} : (tensor<{length}x{WIDTH}xi32>) -> {rows}
    %at{tag} = stablehlo.add %i{tag}, %sf{tag} : {rows}
    %moments{tag} = stablehlo.multiply %rows{tag}, %at{tag} : {rows}
    %c0_{slot} = stablehlo.dynamic_update_slice %a0_{slot}, %rows{tag}, %s{tag}, %zero{tag}
      : ({_CACHE}, {rows}, tensor<i32>, tensor<i32>) -> {_CACHE}
    %c1_{slot} = stablehlo.dynamic_update_slice %a1_{slot}, %moments{tag}, %s{tag}, %zero{tag}
      : ({_CACHE}, {rows}, tensor<i32>, tensor<i32>) -> {_CACHE}
"""


def _logits(tag: str, end: str, slot: int) -> str:
    """Compute %logits<tag> of the rows before `end` in both caches of a slot."""
    return f"""
    %table{tag} = util.global.load @w : tensor<{VOCAB}x{WIDTH}xf32>
    %row{tag} = stablehlo.iota dim = 0 : tensor<{ROWS}x{WIDTH}xi32>
    %limit{tag} = stablehlo.broadcast_in_dim {end}, dims = [0]
      : (tensor<1xi32>) -> tensor<{ROWS}x{WIDTH}xi32>
    %seen{tag} = stablehlo.compare LT, %row{tag}, %limit{tag}
      : (tensor<{ROWS}x{WIDTH}xi32>, tensor<{ROWS}x{WIDTH}xi32>) -> tensor<{ROWS}x{WIDTH}xi1>
    %both{tag} = stablehlo.add %c0_{slot}, %c1_{slot} : {_CACHE}
    %none{tag} = stablehlo.constant dense<0.0> : {_CACHE}
    %visible{tag} = stablehlo.select %seen{tag}, %both{tag}, %none{tag}
      : tensor<{ROWS}x{WIDTH}xi1>, {_CACHE}
    %f{tag} = stablehlo.constant dense<0.0> : tensor<f32>
    %sum{tag} = stablehlo.reduce(%visible{tag} init: %f{tag})
      applies stablehlo.add across dimensions = [0]
      : ({_CACHE}, tensor<f32>) -> tensor<{WIDTH}xf32>
    %flat{tag} = stablehlo.dot_general %table{tag}, %sum{tag}, contracting_dims = [1] x [0]
      : (tensor<{VOCAB}x{WIDTH}xf32>, tensor<{WIDTH}xf32>) -> tensor<{VOCAB}xf32>
    %logits{tag} = stablehlo.reshape %flat{tag} : (tensor<{VOCAB}xf32>) -> {_LOGITS}"""
