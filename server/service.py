"""A bundle being served: what the routes share, and the states that a server goes through.

    starting --> ok --> draining
        |
        +--> self_test_failed

It knows the layers below (runtime, engine, text) and no HTTP.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING

from server.engine.engine import Engine
from server.errors import SelfTestFailed, Starting, Unavailable
from server.runtime.selftest import Verdict, self_test
from server.text.completion import Completer, Completion, CompletionRequest

if TYPE_CHECKING:
    from pathlib import Path

    from models.bundle import Manifest
    from server.engine.state import EngineState
    from server.runtime.base import Runtime
    from server.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """How much the engine may take on.

    queue_limit  requests that may wait for a slot; one more is refused
    cache_ram    bytes of the prefix cache in memory; 0 for none
    cache_dir    where the prefix cache is kept across restarts; None for nowhere
    cache_disk   bytes of the prefix cache there
    """

    queue_limit: int = 64
    cache_ram: int = 256 * 2**20
    cache_dir: Path | None = None
    cache_disk: int = 2**30


def version() -> str:
    """The version of the installed package; of a source tree that is not installed, a word."""
    try:
        return metadata.version("hearth")
    except metadata.PackageNotFoundError:
        return "not installed"


class Service:
    """One model with its engine, from the self-test to the last answer."""

    def __init__(
        self,
        runtime: Runtime,
        tokenizer: Tokenizer,
        manifest: Manifest,
        options: EngineOptions = EngineOptions(),
    ) -> None:
        self.manifest = manifest
        self.verdict: Verdict | None = None
        self._runtime = runtime
        self._engine = Engine(
            runtime, eos=manifest.special_tokens.eos, queue_limit=options.queue_limit
        )
        self._completer = Completer(
            self._engine, tokenizer, vocab_size=runtime.vocab_size, context=runtime.context
        )

    @property
    def idle(self) -> bool:
        """Whether no accepted request is being answered."""
        return self._engine.idle

    def state(self) -> EngineState:
        """Slots, queue and prefix cache, as they are now."""
        return self._engine.state()

    def unavailable(self) -> Unavailable | None:
        """Why no request is accepted now, or None."""
        if problem := self._engine.unavailable():
            return problem
        if self.verdict is None:
            return Starting("the self-test is running: try again in a moment")
        if not self.verdict.passed:
            return SelfTestFailed(self.verdict.message)
        return None

    async def start(self) -> Verdict:
        """Run the self-test and, unless it fails, the engine."""
        verdict = await asyncio.to_thread(
            self_test, self._runtime, self.manifest.golden, self.manifest.tolerance
        )
        if verdict.passed:
            self._engine.start()
        self.verdict = verdict
        return verdict

    async def complete(self, request: CompletionRequest) -> Completion:
        """Accept a request; raises InvalidRequest, QueueFull or Unavailable."""
        if problem := self.unavailable():
            raise problem
        return await self._completer.begin(request)

    def drain(self) -> None:
        """Accept no more requests; what is accepted is answered."""
        self._engine.drain()

    async def stop(self) -> None:
        """Cancel what is left and end the engine."""
        await asyncio.to_thread(self._engine.close)
