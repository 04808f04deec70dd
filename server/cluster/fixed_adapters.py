"""The LoRA adapters of a cluster: those that it was deployed with, on every replica."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.server.errors import NotSupported
from hearthd.server.services.adapters import Adapter, Adapters

if TYPE_CHECKING:
    from collections.abc import Mapping

_REASON = (
    "every replica has the adapters of the deployment; change `lora` in the Serve config and run "
    "`serve deploy`"
)


class FixedAdapters(Adapters):
    """Adapters that do not change: a change would reach one front, and no replica."""

    async def load(self, path: str, name: str | None) -> Adapter:  # noqa: ARG002
        """As Adapters.load; always raises NotSupported."""
        raise NotSupported(f"load: {_REASON}")

    async def unload(self, adapter: Adapter) -> None:
        """As Adapters.unload; always raises NotSupported."""
        raise NotSupported(f"unload {adapter.name}: {_REASON}")

    def set_defaults(self, scales: Mapping[int, float]) -> None:  # noqa: ARG002
        """As Adapters.set_defaults; always raises NotSupported."""
        raise NotSupported(
            "scale: the fronts of a cluster have no default adapter; choose one in each request"
        )
