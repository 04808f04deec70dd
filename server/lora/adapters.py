"""The LoRA adapters of a served model: how requests choose one, and who may change them.

Everything must be called from one event loop.
"""

from __future__ import annotations

import hashlib
import struct
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hearthd.server.engine.generation import AdapterUse
from hearthd.server.use_count import UseCount
from hearthd.text.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from hearthd.bundle.lora.adapter_factors import AdapterFactors


@dataclass(eq=False, kw_only=True)
class Adapter:
    """An adapter at a place.

    place          from 1 on
    name           in requests
    folder         folder, or GGUF file, that it was read from
    factor         of its terms, when a request uses it with scale 1
    digest         sha256 of its files
    default_scale  for requests that choose no adapter; 0: they do not use it
    users          the requests that use it
    leaving        it is about to be unloaded: new requests are rejected
    """

    place: int
    name: str
    folder: Path
    factor: float = 0.0
    digest: bytes = b""
    default_scale: float = 0.0
    users: UseCount = field(default_factory=UseCount)
    leaving: bool = False

    @property
    def id(self) -> int:
        """The number of the adapter in requests, from 0 on."""
        return self.place - 1

    def describe(self, factors: AdapterFactors) -> None:
        """Set what is known of the adapter when its files have been read."""
        self.factor, self.digest = factors.scale, factors.digest

    def use(self, scale: float) -> AdapterUse:
        """The fields of a request that uses the adapter with a scale."""
        key = hashlib.sha256(self.digest + struct.pack("<d", scale)).digest()
        return AdapterUse(place=self.place, scale=self.factor * scale, key=key)


class Adapters(ABC):
    """The adapters that requests for one model may use, by their places."""

    def __init__(self, adapters: Iterable[Adapter] = ()) -> None:
        self._by_place = {adapter.place: adapter for adapter in adapters}

    def __iter__(self) -> Iterator[Adapter]:
        return iter([self._by_place[place] for place in sorted(self._by_place)])

    @abstractmethod
    async def load(self, path: str, name: str | None) -> Adapter:
        """Load an adapter while requests run; raises InvalidRequest or NotSupported."""

    @abstractmethod
    async def unload(self, adapter: Adapter) -> None:
        """Reject new requests for an adapter, and wait for those that use it.

        Raises NotSupported.
        """

    @abstractmethod
    def set_defaults(self, scales: Mapping[int, float]) -> None:
        """Set the scales of requests that choose none, by number.

        Adapters that are not among them get 0. Raises InvalidRequest or NotSupported.
        """

    def named(self, name: str, field: str = "model") -> Adapter:
        """The adapter of a name; raises InvalidRequest."""
        adapter = next(
            (adapter for adapter in self if adapter.name == name and not adapter.leaving), None
        )
        return adapter or self._missing(field, name)

    def numbered(self, id_: int, field: str) -> Adapter:
        """The adapter of a number; raises InvalidRequest."""
        adapter = self._by_place.get(id_ + 1)
        return self._missing(field, id_) if adapter is None or adapter.leaving else adapter

    def default(self) -> tuple[Adapter, float] | None:
        """The adapter of requests that choose none, with its scale."""
        usual = (adapter for adapter in self if adapter.default_scale and not adapter.leaving)
        return next(((adapter, adapter.default_scale) for adapter in usual), None)

    def _missing(self, field: str, got: str | int) -> Adapter:
        loaded = (
            ", ".join(f"{adapter.name} (id {adapter.id})" for adapter in self) or "none is loaded"
        )
        raise InvalidRequest(field=field, got=got, expected=f"a loaded adapter: {loaded}")


def require_one(scales: list[float], field: str) -> None:
    """Raise InvalidRequest if more than one adapter has a scale other than 0."""
    used = [scale for scale in scales if scale]
    if len(used) > 1:
        raise InvalidRequest(
            field=field,
            got=f"{len(used)} adapters",
            expected="at most one adapter with a scale other than 0",
        )
