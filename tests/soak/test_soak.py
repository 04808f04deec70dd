"""The rule of flat memory and the clients of a soak, with a fake model behind the HTTP server."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import time
from typing import TYPE_CHECKING

import httpx
import pytest

from hearthd.bundle.lora.adapter_factors import read_factors
from tests.patience import PATIENCE
from tests.server.adapter_folders import PLACES
from tests.server.fakes import EOS, UNK, Script, fake_service, gemma_like, running
from tools.soak.memory import Sample, growths, sample
from tools.soak.operations import Operator, write_adapter
from tools.soak.questions import Question, ask, questions
from tools.soak.traffic import Client, Loaded, Record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MODEL, ADAPTERS = "fake-model", ["a", "b"]
SAMPLE = Sample(seconds=0, resident=0, anonymous=1, shared=1, files=9, threads=9)


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    for seed, name in enumerate(ADAPTERS):
        write_adapter(tmp_path / name, PLACES, seed)
    script = Script(cue=(UNK, UNK), answer=(), end=EOS)  # a model whose answers can end
    service = fake_service(
        gemma_like(),
        context=16384,
        chunk=512,
        slots=4,
        adapters=PLACES,
        lora_dir=tmp_path,
        script=script,
    )
    with running(service) as client:
        yield str(client.base_url)


class World:
    """A client, an operator and what they know."""

    def __init__(self, client: httpx.AsyncClient, tmp_path: Path) -> None:
        self.http = client
        self.record, self.loaded = Record(), Loaded()
        self.operator = Operator(
            client,
            pid=os.getpid(),
            base=MODEL,
            other=MODEL,
            adapters=ADAPTERS,
            disk=tmp_path,
            loaded=self.loaded,
            record=self.record,
            seed="test",
        )

    async def recorded(self, adapter: str | None) -> dict[Question, str]:
        made = questions(MODEL, adapter, chat=False, rounds=1, seed="test")
        return {question: await ask(self.http, question) for question in made}

    async def run(self, recorded: dict[Question, str], until: str) -> Record:
        """Send requests until one has an outcome that begins so."""
        record = self.record
        ends = time.monotonic() + PATIENCE

        def is_over() -> bool:
            names = {name for row in record.outcomes.values() for name in row}
            return time.monotonic() > ends or any(name.startswith(until) for name in names)

        await Client(self.http, recorded, self.loaded, record, "test-0").run(is_over)
        return record


def memory(*values: float) -> list[Sample]:
    """Samples of an hour whose resident memory has these values by quarter."""
    return [
        dataclasses.replace(SAMPLE, seconds=15 * minute, resident=round(1000 * value))
        for quarter, value in enumerate(values)
        for minute in range(60 * quarter + 1, 60 * quarter + 60)
    ]


@pytest.mark.parametrize(
    ("values", "flat"),
    [((1, 2, 2, 2.03), True), ((1, 2, 3, 2.05), False), ((3, 2, 2, 1), True)],
)
def test_memory_is_flat_if_the_last_quarter_has_that_of_the_second(
    values: tuple[float, ...], flat: bool
) -> None:
    found = {growth.measure: growth for growth in growths(memory(*values))}
    assert found["resident"].flat is flat
    assert found["resident"].peak == round(1000 * max(values))
    assert found["anonymous"].flat
    assert found["files"].flat


def test_more_open_files_are_not_flat() -> None:
    samples = memory(1, 1, 1, 1)
    samples[-59:] = [dataclasses.replace(one, files=12) for one in samples[-59:]]
    assert [growth.measure for growth in growths(samples) if not growth.flat] == ["files"]


def test_a_sample_is_of_this_process() -> None:
    found = sample(os.getpid(), 1.5)
    assert found.resident > found.anonymous > 10e6
    assert 0 < found.shared <= found.resident


def test_a_written_adapter_fits_its_places(tmp_path: Path) -> None:
    write_adapter(tmp_path / "a", PLACES, 1)
    assert read_factors(tmp_path / "a", PLACES).scale


def test_answers_of_a_healthy_server_are_equal(url: str, tmp_path: Path) -> None:
    async def run() -> Record:
        async with httpx.AsyncClient(base_url=url, timeout=PATIENCE) as client:
            world = World(client, tmp_path)
            await world.operator.load_all()
            questions = {**await world.recorded(None), **await world.recorded("a")}
            return await world.run(questions, "equal")

    record = asyncio.run(run())
    assert not record.violations
    assert sum(row["equal"] for row in record.outcomes.values()) == 1


def test_another_answer_and_a_lost_request_are_violations(url: str, tmp_path: Path) -> None:
    async def run(prefix: str, until: str) -> Record:
        async with httpx.AsyncClient(base_url=url, timeout=PATIENCE) as client:
            world = World(client, tmp_path)
            recorded = dict.fromkeys(await world.recorded(None), "other")
            client.base_url = httpx.URL(url + prefix)
            return await world.run(recorded, until)

    other, lost = asyncio.run(run("", "different")), asyncio.run(run("/nowhere", "lost"))
    assert any("recorded other" in text for text in other.violations)
    assert any("404" in text for text in lost.violations)


def test_only_an_adapter_that_is_not_loaded_may_be_refused(url: str, tmp_path: Path) -> None:
    async def run(*, known: bool) -> Record:
        async with httpx.AsyncClient(base_url=url, timeout=PATIENCE) as client:
            world = World(client, tmp_path)
            await world.operator.load_all()
            recorded = await world.recorded("a")
            await client.post("/lora-adapters/unload", json={"id": 0})
            if known:
                world.loaded.drop("a")
            record = await world.run(recorded, "refused" if known else "lost")
            await client.post("/lora-adapters/unload", json={"id": 1})
            return record

    expected, surprising = asyncio.run(run(known=True)), asyncio.run(run(known=False))
    assert not expected.violations
    assert any("refused" in name for row in expected.outcomes.values() for name in row)
    assert any("expected a loaded adapter" in text for text in surprising.violations)
