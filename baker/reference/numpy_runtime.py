"""The reference: a traced program computed by NumPy, behind the same interface as a device.

It is slow and exact, reads the weights of a bundle's archive, and serves no one.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from hearthd.baker.parameters.irpa import BadArchive, open_archive
from hearthd.bundle import MANIFEST, PARAMETERS, NotABundle, padding_of
from hearthd.models.cache_buffers import empty_caches
from hearthd.models.catalog import ARCHITECTURES, ASSISTANTS
from hearthd.models.decoder.architecture import DraftShape
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.precision import kv_cache_of
from hearthd.models.program import ProgramOptions
from hearthd.runtime.interface import LOGIT_MARGIN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.bundle import DraftModelRecord, EntryPoint, LanguageManifest
    from hearthd.models.config import ModelConfig
    from hearthd.models.decoder.architecture import Architecture
    from hearthd.models.dsl.graph import Graph
    from hearthd.models.dsl.types import TensorType
    from hearthd.models.program import Program


class NumpyRuntime:
    """A program and its weights: a Reader (runtime/interface.py) that also embeds."""

    def __init__(
        self, program: Program, parameters: Mapping[str, NDArray[Any]], *, context: int, slots: int
    ) -> None:
        self._program = program
        self._parameters = parameters
        self._context = context
        self._slots = slots
        self._caches: dict[int, list[NDArray[Any]]] = {}

    @property
    def vocab_size(self) -> int:
        """The length of a row of logits."""
        return self._program.vocab_size

    @property
    def hidden(self) -> int:
        """The width of a hidden state."""
        return self._program.hidden

    @property
    def context(self) -> int:
        """The number of positions of a slot."""
        return self._context

    @property
    def slots(self) -> int:
        """The number of sequences that can be held at once."""
        return self._slots

    @property
    def chunk(self) -> int:
        """The most tokens of one prefill, but for whole chunks."""
        ((point, _),) = self._points("embed")
        return point.tokens

    @property
    def longest_prefill(self) -> int:
        """The tokens of whole chunks that one prefill can take."""
        return max(point.tokens for point, _ in self._points("prefill"))

    @property
    def batch(self) -> int:
        """The most sequences that one decode takes."""
        return max(point.batch for point, _ in self._program.entry_points)

    def prefill(self, slot: int, tokens: Sequence[int], start: int) -> None:
        """Read tokens at positions start, start + 1, ... of a slot."""
        point, graph = min(
            (
                pair
                for pair in self._points("prefill")
                if pair[0].tokens >= len(tokens) and pair[0].keys >= start + len(tokens)
            ),
            key=lambda pair: (pair[0].tokens, pair[0].keys),
        )
        self._run(point, graph, (self._padded(tokens, point), [start]), slot)

    def embed(self, slot: int, tokens: Sequence[int], start: int) -> NDArray[np.float32]:
        """Read tokens as `prefill` does; the sum of their hidden states, f32 (hidden,)."""
        ((point, graph),) = self._points("embed")
        numbers = (self._padded(tokens, point), [start], [len(tokens)])
        total: NDArray[np.float32] = self._run(point, graph, numbers, slot)[0]
        return total

    @property
    def verify_tokens(self) -> tuple[int, ...]:
        """The sizes of `verify` in tokens; empty if the program has none."""
        return tuple(point.tokens for point, _ in self._points("verify") if point.batch == 1)

    def verify(
        self, slot: int, tokens: Sequence[int], start: int, *, margin: int = LOGIT_MARGIN
    ) -> NDArray[np.float32]:
        """Read tokens as repeated `decode` does; the logits after each, f32 (len(tokens), V)."""
        point, graph = next(
            pair for pair in self._points("verify") if pair[0].tokens >= len(tokens)
        )
        numbers = (self._padded(tokens, point), [start], [margin])
        logits: NDArray[np.float32] = self._run(point, graph, numbers, slot)[0]
        return logits[: len(tokens)]

    def decode(
        self,
        slots: Sequence[int],
        tokens: Sequence[int],
        positions: Sequence[int],
        margins: Sequence[int] = (),
    ) -> NDArray[np.float32]:
        """Read one token in each slot; the logits after each, f32 (len(slots), vocab_size)."""
        graphs = {point.batch: (point, graph) for point, graph in self._points("decode")}
        batch = len(slots) if len(slots) in graphs else 1
        nats = margins or [LOGIT_MARGIN] * len(slots)
        parts = [slice(i, i + batch) for i in range(0, len(slots), batch)]
        rows = [
            self._run(*graphs[batch], (tokens[part], positions[part], nats[part]), *slots[part])[0]
            for part in parts
        ]
        return np.concatenate(rows)

    def _points(self, entry_kind: str) -> list[tuple[EntryPoint, Graph]]:
        return [
            pair
            for pair in self._program.entry_points
            if pair[0].kind == entry_kind and not pair[0].adapters
        ]

    def _run(
        self, point: EntryPoint, graph: Graph, numbers: Sequence[Sequence[int]], *slots: int
    ) -> list[NDArray[Any]]:
        """Run an entry point on some slots and keep their caches; what it returns before them.

        Integers that are missing, after the given ones, are 0: rotary positions of texts.
        """
        arguments = [np.array(values, np.int32) for values in numbers]
        specs = self._program.caches
        taken = [i for i, spec in enumerate(specs) if spec.is_argument(point.kind)]
        places = [(slot, i) for slot in slots for i in taken]
        caches = [self._slot_caches(slot)[i] for slot, i in places]
        missing = graph.inputs[len(arguments) : len(graph.inputs) - len(caches)]
        arguments += [np.zeros(tensor.shape, np.int32) for tensor in missing]
        results = evaluate(graph, [*arguments, *caches], self._parameters)
        first = len(results) - len(caches)
        for (slot, i), cache in zip(places, results[first:], strict=True):
            self._caches[slot][i] = cache
        return results[:first]

    def row(self, slot: int, position: int) -> list[NDArray[Any]]:
        """The latest row of each cache for a position, each (width,)."""
        pairs = zip(self._program.caches, self._slot_caches(slot), strict=True)
        return [cache[position % (spec.rows - spec.behind)] for spec, cache in pairs]

    def _padded(self, tokens: Sequence[int], point: EntryPoint) -> list[int]:
        padding = padding_of(self._program.caches)
        return [*tokens, *[padding] * (point.tokens - len(tokens))]

    def _slot_caches(self, slot: int) -> list[NDArray[Any]]:
        if slot not in self._caches:
            self._caches[slot] = empty_caches(self._program.caches)
        return self._caches[slot]


def stored_parameters(
    parameters: Mapping[str, TensorType], archive: Path
) -> dict[str, NDArray[Any]]:
    """A program's weights as arrays that are mapped from a parameter archive.

    Raises BadArchive when they are not all there.
    """
    entries = open_archive(archive)
    for name, tensor_type in parameters.items():
        if name not in entries or entries[name].nbytes != tensor_type.nbytes:
            raise BadArchive(
                f"{archive} has no {name} of {tensor_type.nbytes} bytes: bake it again"
            )
    return {
        name: entries[name].view(tensor_type.dtype.numpy).reshape(tensor_type.shape)
        for name, tensor_type in parameters.items()
    }


def answering_parameters(program: Program) -> dict[str, TensorType]:
    """The types of the arrays that answers need, by name.

    Only drafts read the others, which a bundle of an older version may lack.
    """
    read = {
        name
        for point, graph in program.entry_points
        if point.kind != "draft"
        for name in graph.parameters
    }
    return {name: type_ for name, type_ in program.parameters.items() if name in read}


def slightly_changed(
    parameters: Mapping[str, NDArray[Any]], seed: int = 0
) -> dict[str, NDArray[Any]]:
    """The parameters with vectors of f32 that are changed by about a millionth, at random."""
    random = np.random.default_rng(seed)
    changed = dict(parameters)
    for name, array in parameters.items():
        if array.dtype == np.float32 and array.ndim == 1:
            factors = 1 + 1e-6 * random.standard_normal(array.shape)
            changed[name] = (array * factors).astype(np.float32)
    return changed


class PassingParameters(Mapping[str, "NDArray[Any]"]):
    """Arrays by name. Those that are mapped from a file leave the memory of this process again.

    After `limit` bytes of arrays were looked up, the pages that were
    read are unmapped: the system keeps them as long as it has memory. An array that is in use is
    read again.
    """

    def __init__(self, arrays: Mapping[str, NDArray[Any]], limit: int = 1 << 30) -> None:
        self._arrays, self._limit, self._looked_up = arrays, limit, 0

    @override
    def __getitem__(self, name: str) -> NDArray[Any]:
        array = self._arrays[name]
        self._looked_up += array.nbytes
        if self._looked_up > self._limit and (mapping := _mapping_of(array)) is not None:
            self._looked_up = array.nbytes
            mapping.madvise(mmap.MADV_DONTNEED)
        return array

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    @override
    def __len__(self) -> int:
        return len(self._arrays)


def _mapping_of(array: NDArray[Any]) -> mmap.mmap | None:
    base: Any = array
    while base is not None and not isinstance(base, mmap.mmap):
        base = base.obj if isinstance(base, memoryview) else base.base
    return base


def open_reference(bundle: Path, manifest: LanguageManifest) -> NumpyRuntime:
    """The reference of a baked bundle: its program traced again, on its own weights.

    Raises NotABundle, ConfigError, DslError or BadArchive for a bundle of another program.
    """
    program = traced(manifest)
    return NumpyRuntime(
        program,
        stored_parameters(answering_parameters(program), bundle / PARAMETERS),
        context=manifest.context,
        slots=manifest.slots,
    )


def traced(manifest: LanguageManifest, **changes: Any) -> Program:
    """The program of a baked bundle, traced again; `changes` are ProgramOptions that differ.

    Raises NotABundle, ConfigError or DslError.
    """
    architecture = _architecture(manifest.architecture)
    config: ModelConfig = architecture.from_manifest(manifest.config)
    return architecture.program(config, replace(program_options(manifest), **changes))


def program_options(manifest: LanguageManifest) -> ProgramOptions:
    """The options that a bundle was baked with."""
    points = [point for point in manifest.entry_points if not point.adapters]
    prefills = sorted({point.tokens for point in points if point.kind == "prefill"})
    chunk = next(point.tokens for point in points if point.kind == "embed")
    return ProgramOptions(
        context=manifest.context,
        precision=manifest.precision,
        prefill_tokens=tuple(tokens for tokens in prefills if tokens <= chunk),
        long_prefill=prefills[-1] if prefills[-1] > chunk else 0,
        decode_batches=tuple(point.batch for point in points if point.kind == "decode"),
        verify_tokens=tuple(
            point.tokens for point in points if point.kind == "verify" and point.batch == 1
        ),
        pair_tokens=sum(
            point.tokens for point in points if point.kind == "verify" and point.batch == 2
        ),
        reads_rows=any(point.kind == "prefill_rows" for point in points),
        image_rows=tuple(sorted(point.tokens for point in points if point.kind == "image"))
        if manifest.image_grid is not None
        else (),
        sound_rows=tuple(sorted(point.tokens for point in points if point.kind == "sound")),
        storages=manifest.storages,
        kv_cache=kv_cache_of([cache.dtype for cache in manifest.caches]),
        activations=manifest.activations,
        draft_tokens=manifest.draft_tokens,
        draft_model=_draft_model(manifest.draft_model),
        adapters=manifest.adapters.count,
        adapter_rank=max(1, manifest.adapters.rank),
    )


def _architecture(name: str) -> Architecture[Any]:
    if name not in ARCHITECTURES:
        raise NotABundle(f"{MANIFEST} has the architecture {name!r:.80}, unknown")
    return ARCHITECTURES[name]


def _draft_model(record: DraftModelRecord | None) -> DraftShape | None:
    if record is None:
        return None
    assistant = ASSISTANTS.get(record.architecture)
    architecture = assistant or _architecture(record.architecture)
    return DraftShape(architecture=architecture, config=architecture.from_manifest(record.config))
