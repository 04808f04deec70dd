"""The clients of a soak: their requests, and the outcome of each."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx

from benchmarks.serving.load_client import Prompts
from tools.soak.questions import COMPLETIONS, Incomplete, Question, Rejected, ask, book_body

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

_PAUSE = 0.6  # seconds at most between two requests of a client
_KEPT = 0.1  # share of the answers without a record that are asked for again at the end
_MAX_KEPT = 150
_INVALID: tuple[dict[str, Any] | bytes, ...] = (
    {},
    {"prompt": 1.5},
    {"prompt": "Hello", "temperature": -1},
    {"prompt": "Hello", "max_tokens": "many"},
    {"prompt": "Hello", "model": "absent"},
    {"prompt": "word " * 40_000},
    b"{",
)


@dataclass
class Loaded:
    """Which adapters are loaded; `changes` counts the times that this began to change."""

    names: set[str] = field(default_factory=set)
    changes: Counter[str] = field(default_factory=Counter)

    def drop(self, *names: str) -> None:
        """These adapters are about to be unloaded."""
        self.names -= set(names)
        self.changes.update(names)

    def state(self, name: str | None) -> int | None:
        """None if the adapter is not loaded; else a number that changes when it is dropped."""
        if name is None:
            return 0
        return self.changes[name] if name in self.names else None


@dataclass
class Record:
    """What became of the requests, by kind and outcome; `violations` are what must not be."""

    outcomes: defaultdict[str, Counter[str]] = field(
        default_factory=lambda: defaultdict(Counter[str])
    )
    violations: list[str] = field(default_factory=list)
    kept: list[tuple[Question, str]] = field(default_factory=list)

    def violation(self, text: str) -> None:
        """Note a violation with the time."""
        self.violations.append(f"{time.strftime('%H:%M:%S', time.gmtime())} {text}")


class Client:
    """One client, which sends one request at a time."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        recorded: Mapping[Question, str],
        loaded: Loaded,
        record: Record,
        seed: str,
    ) -> None:
        self._client = client
        self._recorded = recorded
        self._questions: Sequence[Question] = list(recorded)
        self._loaded = loaded
        self._record = record
        self._seed = seed.rpartition("-")[0]
        self._random = random.Random(seed)
        self._prompts = Prompts(seed)

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Send requests until it is over."""
        actions: dict[Callable[[], Awaitable[None]], int] = {
            self._repeat: 10,
            self._new: 4,
            self._leave_a_stream: 2,
            self._leave_an_answer: 2,
            self._invalid: 1,
        }
        while not is_over():
            action = self._random.choices(list(actions), list(actions.values()))[0]
            name = action.__name__.strip("_").replace("_", " ")
            try:
                await action()
            except (httpx.HTTPError, Incomplete, Rejected, ValueError) as error:
                self._record.outcomes[name]["lost"] += 1
                self._record.violation(f"{name}: {type(error).__name__}: {error}")
            await asyncio.sleep(self._random.uniform(0, _PAUSE))

    async def _repeat(self) -> None:
        """Ask a recorded question."""
        question = self._random.choice(self._questions)
        answer = await self._asked(question)
        if answer is None:
            return
        equal = answer == self._recorded[question]
        self._record.outcomes[question.kind]["equal" if equal else "different"] += 1
        if not equal:
            self._record.violation(
                f"{question.name}: got {answer}, recorded {self._recorded[question]}"
            )

    async def _new(self) -> None:
        """Ask a question that was not asked before, whose start the server may have cached."""
        like = self._random.choice(self._questions)
        body = book_body(self._random, self._seed, self._prompts.text(self._random.randint(1, 40)))
        question = Question(kind="new", model=like.model, adapter=like.adapter, body=body)
        answer = await self._asked(question)
        if answer is None:
            return
        self._record.outcomes["new"]["answered"] += 1
        if self._random.random() < _KEPT and len(self._record.kept) < _MAX_KEPT:
            self._record.kept.append((question, answer))

    async def _asked(self, question: Question) -> str | None:
        """The answer; None if the adapter was being unloaded, or was not loaded."""
        before = self._loaded.state(question.adapter)
        try:
            answer = await ask(self._client, question)
        except Rejected as error:
            after = self._loaded.state(question.adapter)
            changed = before is None or before != after
            if error.status == 400 and "expected a loaded adapter" in str(error) and changed:
                self._record.outcomes[question.kind]["refused: adapter not loaded"] += 1
                return None
            raise
        return answer

    def _body(self) -> dict[str, Any]:
        like = self._random.choice(self._questions)
        prompt = self._prompts.text(self._random.randint(1, 200))
        return {"model": like.model, "prompt": prompt, "max_tokens": 64, "seed": 1}

    async def _leave_a_stream(self) -> None:
        lines = self._random.randint(0, 30)
        body = {**self._body(), "stream": True}
        async with self._client.stream("POST", COMPLETIONS, json=body) as response:
            if response.status_code != 200:
                raise Rejected(response.status_code, (await response.aread()).decode())
            async for _ in response.aiter_lines():
                lines -= 1
                if lines < 0:
                    break
        self._record.outcomes["leave a stream"]["left"] += 1

    async def _leave_an_answer(self) -> None:
        timeout = self._random.uniform(0.01, 1.5)
        try:
            response = await self._client.post(COMPLETIONS, json=self._body(), timeout=timeout)
        except httpx.TimeoutException:
            self._record.outcomes["leave an answer"]["left"] += 1
            return
        if response.status_code != 200:
            raise Rejected(response.status_code, response.text)
        self._record.outcomes["leave an answer"]["answered"] += 1

    async def _invalid(self) -> None:
        body = self._random.choice(_INVALID)
        if isinstance(body, bytes):
            response = await self._client.post(COMPLETIONS, content=body)
        else:
            response = await self._client.post(COMPLETIONS, json=body)
        if not 400 <= response.status_code < 500:
            raise Rejected(response.status_code, response.text)
        self._record.outcomes["invalid"]["rejected"] += 1
