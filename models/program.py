"""The program of a model, for the baker: traced functions and the weights that they need."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np
from typing_extensions import override

from hearthd.bundle import NO_PLACES, EntryPoint
from hearthd.models.dsl.functions import DECODE_ROWS
from hearthd.models.dsl.storage import STORAGES
from hearthd.models.dsl.types import DslError
from hearthd.models.precision import PRECISIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from hearthd.bundle import Activations, AdapterPlaces, CacheSpec
    from hearthd.models.decoder.architecture import DraftShape
    from hearthd.models.dsl.graph import Graph
    from hearthd.models.dsl.rewrites.stored_weights import Weight
    from hearthd.models.dsl.storage import Storage
    from hearthd.models.dsl.types import TensorType
    from hearthd.models.optimized import Unfused
    from hearthd.models.precision import KvCache

S = TypeVar("S", bound=np.generic)


@dataclass(frozen=True, kw_only=True)
class StorageOptions:
    """How weights are stored.

    precision  a name of PRECISIONS: how matrices are stored
    storages   parameters whose matrices are stored in another way than the precision's: a name of
               STORAGES by parameter
    """

    precision: str
    storages: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise DslError(f"precision: got {self.precision!r}, expected {', '.join(PRECISIONS)}")
        for name in self.storages.values():
            if name not in STORAGES:
                raise DslError(f"storages: got {name!r}, expected {', '.join(STORAGES)}")

    def storage(self, parameter: str) -> Storage:
        """How the matrix of a parameter is stored."""
        if parameter in self.storages:
            return STORAGES[self.storages[parameter]]
        precision = PRECISIONS[self.precision]
        in_layer = parameter.startswith("layers.")
        return precision.layers if precision.layers and in_layer else precision.storage


@dataclass(frozen=True, kw_only=True)
class ProgramOptions(StorageOptions):
    """The options that are fixed while baking.

    context         positions of a slot, in tokens
    prefill_tokens  sizes of the prefill entry points for a chunk or less, rising
    long_prefill    size of the prefill that reads several whole chunks at once; 0: none
    decode_batches  sizes of the decode entry points, rising, from 1
    verify_tokens   sizes of the verify entry points, rising, from 2; none if nothing is guessed
    pair_tokens     tokens of each sequence in the verify entry point for two; 0: none
    reads_rows      whether prefills can read rows of embeddings; a model with a tower then has an
                    entry point for images
    image_rows      sizes of the entry points for images of any size, in rows, rising; of a model
                    that reads such images
    sound_rows      sizes of the entry points for sound, in rows, rising; of a model that reads
                    sound
    kv_cache        how keys and values are stored; None: as the precision says
    activations     what products with matrices of integers round activations to
    draft_tokens    tokens that a drafter can draft; 0: no drafter. It is the MTP layer of the
                    checkpoint if the configuration of the model has one, otherwise a tuned one;
                    see models/decoder/drafting/
    draft_model     a small language model that drafts these tokens in their place
    adapters        places for LoRA adapters; 0 for none
    adapter_rank    the largest rank of an adapter
    """

    context: int
    prefill_tokens: tuple[int, ...]
    long_prefill: int = 0
    decode_batches: tuple[int, ...]
    verify_tokens: tuple[int, ...] = ()
    pair_tokens: int = 0
    reads_rows: bool = False
    image_rows: tuple[int, ...] = ()
    sound_rows: tuple[int, ...] = ()
    kv_cache: KvCache | None = None
    activations: Activations = "int16"
    draft_tokens: int = 0
    draft_model: DraftShape | None = None
    adapters: int = 0
    adapter_rank: int = 16

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        for name, sizes in (
            ("prefill_tokens", self.prefill_tokens),
            ("decode_batches", self.decode_batches),
        ):
            if not sizes or sizes != tuple(sorted(set(sizes))) or sizes[0] < 1:
                raise DslError(f"{name}: expected rising sizes from 1, got {sizes}")
        if self.long_prefill % self.chunk or self.long_prefill == self.chunk:
            raise DslError(
                f"long_prefill: expected several times {self.chunk}, got {self.long_prefill}"
            )
        if self.decode_batches[0] != 1:
            raise DslError(f"decode_batches: expected 1 among them, got {self.decode_batches}")
        self._check_verifies()
        for name, sizes in (("image_rows", self.image_rows), ("sound_rows", self.sound_rows)):
            if sizes != tuple(sorted(set(sizes))) or 0 in sizes:
                raise DslError(f"{name}: expected rising sizes from 1, got {sizes}")
        if self.context < 1:
            raise DslError(f"context: expected at least 1 token, got {self.context}")
        if self.adapters < 0 or self.adapter_rank < 1:
            raise DslError(
                f"adapters: expected places and a rank of at least 1, got {self.adapters} places "
                f"of rank {self.adapter_rank}"
            )

    def _check_verifies(self) -> None:
        sizes = self.verify_tokens
        most = min(DECODE_ROWS, self.chunk)  # rows that round alike; rows that a ring has room for
        if sizes != tuple(sorted(set(sizes))) or any(not 2 <= size <= most for size in sizes):
            raise DslError(f"verify_tokens: expected rising sizes from 2 to {most}, got {sizes}")
        most = min(DECODE_ROWS // 2, max(sizes, default=0))  # rings of states have room for sizes
        if self.pair_tokens and not 2 <= self.pair_tokens <= most:
            expected = f"2 to {most}" if sizes else "0 without verify_tokens"
            raise DslError(f"pair_tokens: expected {expected}, got {self.pair_tokens}")

    @property
    def chunk(self) -> int:
        """The largest prefill of a chunk, in tokens."""
        return self.prefill_tokens[-1]

    @property
    def longest_prefill(self) -> int:
        """The largest prefill, in tokens."""
        return self.long_prefill or self.chunk

    @property
    def draft_sizes(self) -> tuple[int, ...]:
        """Sizes of the draft entry points, in tokens: a draft model reads several at once."""
        if not self.draft_tokens:
            return ()
        reads = self.draft_model is not None and self.draft_model.reads_tokens
        several = (self.prefill_tokens[0],) if reads else ()
        return tuple(sorted({1, *several}))

    def entry_points(self, blocks: Sequence[int] = ()) -> tuple[EntryPoint, ...]:
        """The entry points to compile; `blocks` are the sizes of the kind prefill_block."""
        prefills = [self._entry_point("prefill", tokens=tokens) for tokens in self.prefill_tokens]
        embed = dataclasses.replace(prefills[-1], name=f"embed_{self.chunk}", kind="embed")
        decodes = [self._entry_point("decode", batch=batch) for batch in self.decode_batches]
        verifies = [self._entry_point("verify", tokens=tokens) for tokens in self.verify_tokens]
        if self.pair_tokens:
            verifies.append(self._entry_point("verify", batch=2, tokens=self.pair_tokens))
        points = (*prefills, embed, *decodes, *verifies)
        if self.reads_rows:
            points += tuple(_with_rows(point) for point in prefills)
        if self.long_prefill:
            points += (self._entry_point("prefill", tokens=self.long_prefill),)
        points += tuple(self._entry_point("prefill_block", tokens=tokens) for tokens in blocks)
        drafts = tuple(self._entry_point("draft", tokens=tokens) for tokens in self.draft_sizes)
        if not self.adapters:
            return (*points, *drafts)
        # Programs without adapters stay: adapters cost time even when no request has one.
        adapted = (
            dataclasses.replace(point, name=f"{point.name}_adapted", adapters=True)
            for point in points
        )
        return (*points, *drafts, *adapted)

    def _entry_point(
        self,
        entry_kind: Literal["prefill", "prefill_block", "decode", "verify", "draft"],
        *,
        batch: int = 1,
        tokens: int = 1,
    ) -> EntryPoint:
        size = str(batch if entry_kind == "decode" else tokens)
        if min(batch, tokens) > 1:
            size = f"{batch}x{tokens}"
        name = f"{entry_kind}_{size}"
        return EntryPoint(name=name, kind=entry_kind, batch=batch, tokens=tokens, keys=self.context)


def _with_rows(prefill: EntryPoint) -> EntryPoint:
    """The entry point that reads as a prefill does, and rows of embeddings too."""
    name = prefill.name.replace("prefill", "prefill_rows", 1)
    return dataclasses.replace(prefill, name=name, kind="prefill_rows")


@dataclass(frozen=True, kw_only=True)
class Program:
    """A language model's entry points (the ABI is in bundle), caches of a slot, and weights.

    graphs    the functions that are compiled: the entry points, an image's as slices
    fusions   by entry point, how often each rule of models/optimized.py was applied
    unfused   by entry point, what a rule left as it is, by its name
    adapters  the places for LoRA adapters
    """

    vocab_size: int
    hidden: int
    row_width: int
    caches: tuple[CacheSpec, ...]
    entry_points: tuple[tuple[EntryPoint, Graph], ...]
    graphs: tuple[Graph, ...]
    weights: tuple[Weight, ...]
    fusions: Mapping[str, Mapping[str, int]]
    unfused: Mapping[str, Mapping[str, Unfused]]
    adapters: AdapterPlaces = NO_PLACES

    @property
    def parameters(self) -> dict[str, TensorType]:
        """The types of all stored arrays, by name."""
        return parameter_types(self.weights)


@dataclass(frozen=True, kw_only=True)
class ArraysProgram:
    """Traced functions of arrays and their weights: a program that is not a language model.

    graphs   the functions; their arguments have the names of a graph's inputs
    outputs  by graph, the names of its results
    weights  the weights, which the functions share
    zeros    inputs, of any function, that are zeros where a caller leaves them out: states
    """

    graphs: tuple[Graph, ...]
    outputs: Mapping[str, tuple[str, ...]]
    weights: tuple[Weight, ...]
    zeros: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Raises DslError where a result has no name, or two have the same."""
        names = [graph.name for graph in self.graphs]
        if sorted(names) != sorted(self.outputs) or len(set(names)) != len(names):
            raise DslError(f"functions: expected results of {names}, got {list(self.outputs)}")
        for graph in self.graphs:
            results = self.outputs[graph.name]
            if len(set(results)) != len(graph.outputs):
                raise DslError(
                    f"{graph.name}: expected {len(graph.outputs)} names of results, got {results}"
                )

    @property
    def parameters(self) -> dict[str, TensorType]:
        """The types of all stored arrays, by name."""
        return parameter_types(self.weights)


def parameter_types(weights: Iterable[Weight]) -> dict[str, TensorType]:
    """The types of the arrays that weights are stored as, by name."""
    return {name: tensor.type for weight in weights for name, tensor in weight.parameters.items()}


@dataclass(frozen=True)
class StoredTensor:
    """Where the values of a parameter, or of one of its parts, are in a file of weights.

    offset       added to each value
    interleaved  the rows of a head, or 0: a file then has row i of a head's first half and row i of
                 its second half side by side; a parameter has half after half
    share        (i, n): the rows are part i of n equal parts of the tensor's rows, or of the rows
                 of each matrix of a tensor of several
    alternating  whether the rows are instead every n-th one from row i on
    grouped      (n, i, j): the tensor's rows are n equal groups, and the parameter has rows i to j
                 of each; None: the rows are not in groups
    transposed   whether the tensor has the rows of each matrix, or of each group, as columns
    vectors      whether the tensor has a vector of each expert, whose values count as rows
    logarithm    s, where the values are s exp(x) for those x of the tensor; 0: they are x
    softplus     whether the values are softplus(x) for those x of the tensor
    channels     of the pixels in each row, or 0: a file then has the channels of a pixel side by
                 side; a parameter has channel after channel
    """

    name: str
    offset: float = 0.0
    interleaved: int = 0
    share: tuple[int, int] = (0, 1)
    logarithm: int = 0
    softplus: bool = False
    alternating: bool = False
    transposed: bool = False
    vectors: bool = False
    grouped: tuple[int, int, int] | None = None
    channels: int = 0

    def rows(self, extent: int) -> slice:
        """The rows of the parameter in a tensor of `extent` rows."""
        part, parts = self.share
        if self.alternating:
            return slice(part, extent, parts)
        return slice(extent * part // parts, extent * (part + 1) // parts)

    def matrices(self, values: NDArray[S]) -> NDArray[S]:
        """Values of the tensor as matrices, (..., rows, columns), with all of its rows."""
        values = values[..., np.newaxis] if self.vectors else values
        return values.swapaxes(-1, -2) if self.transposed else values


def gguf_name(parameter: str, names: Mapping[str, str]) -> str:
    """A parameter's name in a GGUF file, by the file's names for its parts, or for itself."""
    layer, inner = "", parameter
    if parameter.startswith("layers."):
        _, number, inner = parameter.split(".", 2)
        layer = f"blk.{number}."
    path, _, suffix = inner.rpartition(".")
    return layer + (names.get(inner) or f"{names[path]}.{suffix}")
