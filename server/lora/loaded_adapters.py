"""The LoRA adapters that an engine of this process has loaded, and how to load and unload them.

Everything must be called from one event loop, except `open`, before there is one.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.bundle.lora.adapter_factors import read_factors
from hearthd.bundle.lora.adapter_settings import BadAdapter
from hearthd.bundle.lora.read_adapter import adapter_name
from hearthd.runtime.iree.device import CannotLoad
from hearthd.server.lora.adapters import Adapter, Adapters, require_one
from hearthd.text.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from hearthd.bundle import AdapterPlaces, PublicKey
    from hearthd.bundle.lora.adapter_factors import AdapterFactors
    from hearthd.runtime.interface import Runtime
    from hearthd.server.engine.engine import Engine


class LoadedAdapters(Adapters):
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
        super().__init__()
        self._allowed = allowed
        self._keys = keys
        self._places = places
        self._engine = engine
        self._loading: dict[int, str] = {}  # names by place

    def open(self, folders: Mapping[str, Path], runtime: Runtime) -> None:
        """Load adapters by name, before the engine is started; raises CannotLoad."""
        for adapter, factors in read_adapters(folders, self._places, self._keys):
            runtime.write_adapter(adapter.place, factors.arrays)
            self._by_place[adapter.place] = adapter

    @override
    async def load(self, path: str, name: str | None) -> Adapter:
        """The adapter must be in the allowed folder."""
        folder = self._folder(path)
        adapter = self._reserve(name or adapter_name(folder), folder)
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
        adapter.describe(factors)
        self._by_place[adapter.place] = adapter
        return adapter

    @override
    async def unload(self, adapter: Adapter) -> None:
        """The place of the adapter is free afterwards."""
        adapter.leaving = True
        try:
            await adapter.users.unused()
            self._by_place.pop(adapter.place, None)
        finally:
            adapter.leaving = False

    @override
    def set_defaults(self, scales: Mapping[int, float]) -> None:
        chosen = {self.numbered(id_, "id"): scale for id_, scale in scales.items()}
        require_one(list(chosen.values()), "scale")
        for adapter in self:
            adapter.default_scale = chosen.get(adapter, 0.0)

    def _folder(self, path: str) -> Path:
        if self._allowed is None:
            expected = "no path: the server was started without --lora-dir, the folder of adapters"
            raise InvalidRequest(field="path", got=path, expected=expected)
        try:
            allowed = self._allowed.expanduser().resolve()
            folder = (allowed / path).resolve()
            is_adapter = folder.is_dir() or (folder.suffix == ".gguf" and folder.is_file())
            inside = folder.is_relative_to(allowed) and folder != allowed and is_adapter
        except (OSError, ValueError, RuntimeError):
            inside = False
        if not inside:
            raise InvalidRequest(
                field="path", got=path, expected="a folder in --lora-dir, or a GGUF file in it"
            )
        return folder

    def _reserve(self, name: str, folder: Path) -> Adapter:
        """An adapter with a free place."""
        taken = {adapter.place: adapter.name for adapter in self} | self._loading
        return _reserve(self._places, name, folder, taken)


def read_adapters(
    folders: Mapping[str, Path], places: AdapterPlaces, keys: Sequence[PublicKey] = ()
) -> Iterator[tuple[Adapter, AdapterFactors]]:
    """Read adapters by name for the first places of a model, in order; raises CannotLoad."""
    taken: dict[int, str] = {}
    for name, folder in folders.items():
        try:
            adapter = _reserve(places, name, folder, taken)
            factors = read_factors(folder, places, keys)
        except (InvalidRequest, BadAdapter) as error:
            raise CannotLoad(f"lora: {error}") from error
        taken[adapter.place] = name
        adapter.describe(factors)
        yield adapter, factors


def _reserve(places: AdapterPlaces, name: str, folder: Path, taken: Mapping[int, str]) -> Adapter:
    """An adapter with a place that is not `taken`, which has names by place.

    Raises InvalidRequest.
    """
    if not places.count:
        raise InvalidRequest(
            field="path",
            got=folder.name,
            expected="a bundle with places for adapters; bake it again with --adapters",
        )
    if name in taken.values():
        raise InvalidRequest(field="name", got=name, expected="a name that is not in use")
    free = [place for place in range(1, places.count + 1) if place not in taken]
    if not free:
        raise InvalidRequest(
            field="path",
            got=folder.name,
            expected=f"at most {places.count} adapters, the places of the bundle; unload one first",
        )
    return Adapter(place=free[0], name=name, folder=folder)
