"""The LoRA adapters of a served model: their places, names and the requests that use them.

Everything must be called from one event loop, except `open`, before there is one.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from models.peft.adapter_factors import read_factors
from models.peft.adapter_settings import BadAdapter
from server.engine.generation import AdapterUse
from server.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from models.bundle import AdapterPlaces, PublicKey
    from models.peft.adapter_factors import AdapterFactors
    from runtime.interface import Runtime
    from server.engine.engine import Engine

_IDLE_INTERVAL = 0.05  # seconds between checks whether an adapter still has requests


@dataclass(eq=False, kw_only=True)
class Adapter:
    """An adapter at a place.

    place          from 1 on
    name           in requests
    folder         that it was read from
    factor         of its terms, when a request uses it with scale 1
    digest         sha256 of its files
    default_scale  for requests that choose no adapter; 0: they do not use it
    users          requests that use it
    leaving        it is about to be unloaded: new requests are rejected
    """

    place: int
    name: str
    folder: Path
    factor: float = 0.0
    digest: bytes = b""
    default_scale: float = 0.0
    users: int = 0
    leaving: bool = False

    @property
    def id(self) -> int:
        """The number of the adapter in requests, from 0 on."""
        return self.place - 1

    def use(self, scale: float) -> AdapterUse:
        """The fields of a request that uses the adapter with a scale."""
        key = hashlib.sha256(self.digest + struct.pack("<d", scale)).digest()
        return AdapterUse(place=self.place, scale=self.factor * scale, key=key)


class LoadedAdapters:
    """The adapters of one loaded model; requests may load those in the folder `allowed`.

    If there are `keys`, one of them must have signed every adapter.
    """

    def __init__(
        self,
        places: AdapterPlaces,
        engine: Engine,
        *,
        allowed: Path | None = None,
        keys: Sequence[PublicKey] = (),
    ) -> None:
        self._allowed = allowed
        self._keys = keys
        self._places = places
        self._engine = engine
        self._by_place: dict[int, Adapter] = {}
        self._loading: dict[int, str] = {}  # names by place

    def __iter__(self) -> Iterator[Adapter]:
        return iter([self._by_place[place] for place in sorted(self._by_place)])

    def open(self, folders: Mapping[str, Path], runtime: Runtime) -> None:
        """Load adapters by name, before the engine is started; raises BadAdapter."""
        for name, folder in folders.items():
            try:
                adapter = self._reserve(name, folder)
            except InvalidRequest as error:
                raise BadAdapter(str(error)) from error
            factors = read_factors(folder, self._places, self._keys)
            runtime.write_adapter(adapter.place, factors.arrays)
            self._add(adapter, factors)

    async def load(self, path: str, name: str | None) -> Adapter:
        """Load an adapter of the allowed folder while requests run; raises InvalidRequest."""
        folder = self._folder(path)
        adapter = self._reserve(name or folder.name, folder)
        self._loading[adapter.place] = adapter.name
        try:
            factors = await asyncio.to_thread(read_factors, folder, self._places, self._keys)
            await self._engine.write_adapter(adapter.place, factors.arrays)
        except BadAdapter as error:
            reason = str(error).replace(str(folder), folder.name)
            raise InvalidRequest(
                field="path", got=path, expected=f"an adapter of this model: {reason}"
            ) from error
        finally:
            del self._loading[adapter.place]
        self._add(adapter, factors)
        return adapter

    async def unload(self, adapter: Adapter) -> None:
        """Reject new requests for an adapter, wait for those that use it, and free its place."""
        adapter.leaving = True
        try:
            while adapter.users:
                await asyncio.sleep(_IDLE_INTERVAL)
            self._by_place.pop(adapter.place, None)
        finally:
            adapter.leaving = False

    def named(self, name: str, field: str = "model") -> Adapter:
        """The adapter of a name; raises InvalidRequest."""
        adapter = next((one for one in self if one.name == name and not one.leaving), None)
        return adapter or self._missing(field, name)

    def numbered(self, id_: int, field: str) -> Adapter:
        """The adapter of a number; raises InvalidRequest."""
        adapter = self._by_place.get(id_ + 1)
        return self._missing(field, id_) if adapter is None or adapter.leaving else adapter

    def default(self) -> tuple[Adapter, float] | None:
        """The adapter of requests that choose none, with its scale."""
        usual = (one for one in self if one.default_scale and not one.leaving)
        return next(((one, one.default_scale) for one in usual), None)

    def set_defaults(self, scales: Mapping[int, float]) -> None:
        """Set the scales of requests that choose none, by number; raises InvalidRequest.

        Adapters that are not among them get 0.
        """
        chosen = {self.numbered(id_, "id"): scale for id_, scale in scales.items()}
        require_one(list(chosen.values()), "scale")
        for adapter in self:
            adapter.default_scale = chosen.get(adapter, 0.0)

    @contextlib.contextmanager
    def using(self, adapter: Adapter) -> Iterator[None]:
        """Keep an adapter loaded in the block."""
        adapter.users += 1
        try:
            yield
        finally:
            adapter.users -= 1

    def _folder(self, path: str) -> Path:
        if self._allowed is None:
            expected = "no path: the server was started without --lora-dir, the folder of adapters"
            raise InvalidRequest(field="path", got=path, expected=expected)
        try:
            allowed = self._allowed.expanduser().resolve()
            folder = (allowed / path).resolve()
            inside = folder.is_relative_to(allowed) and folder != allowed and folder.is_dir()
        except (OSError, ValueError, RuntimeError):
            inside = False
        if not inside:
            raise InvalidRequest(field="path", got=path, expected="a folder in --lora-dir")
        return folder

    def _reserve(self, name: str, folder: Path) -> Adapter:
        """An adapter with a free place."""
        if not self._places.count:
            raise InvalidRequest(
                field="path",
                got=folder.name,
                expected="a bundle with places for adapters; bake it again with --adapters",
            )
        if name in self._loading.values() or any(one.name == name for one in self):
            raise InvalidRequest(field="name", got=name, expected="a name that is not in use")
        taken = self._by_place.keys() | self._loading
        free = [place for place in range(1, self._places.count + 1) if place not in taken]
        if not free:
            raise InvalidRequest(
                field="path",
                got=folder.name,
                expected=f"at most {self._places.count} adapters, the places of the bundle; unload "
                "one first",
            )
        return Adapter(place=free[0], name=name, folder=folder)

    def _add(self, adapter: Adapter, factors: AdapterFactors) -> None:
        adapter.factor, adapter.digest = factors.scale, factors.digest
        self._by_place[adapter.place] = adapter

    def _missing(self, field: str, got: str | int) -> Adapter:
        loaded = ", ".join(f"{one.name} (id {one.id})" for one in self) or "none is loaded"
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
