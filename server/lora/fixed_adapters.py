"""The LoRA adapters of a cluster: those that it was deployed with, on every replica."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.server.lora.adapters import Adapter, Adapters
from hearthd.text.errors import NotSupported

if TYPE_CHECKING:
    from collections.abc import Mapping

_REASON = (
    "every replica has the adapters of the deployment; change `lora` in the Serve config and run "
    "`serve deploy`"
)


class FixedAdapters(Adapters):
    """Adapters that do not change: a change would reach one front, and no replica."""

    @override
    async def load(self, path: str, name: str | None) -> Adapter:
        """Always raises NotSupported."""
        raise NotSupported(f"load: {_REASON}")

    @override
    async def unload(self, adapter: Adapter) -> None:
        """Always raises NotSupported."""
        raise NotSupported(f"unload {adapter.name}: {_REASON}")

    @override
    def set_defaults(self, scales: Mapping[int, float]) -> None:
        """Always raises NotSupported."""
        raise NotSupported(
            "scale: the fronts of a cluster have no default adapter; choose one in each request"
        )
