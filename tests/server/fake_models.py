"""Models with fake runtimes that a pool loads and unloads."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hearthd.bundle import CHAT_TEMPLATE, SHARED_MEMORY, FileRecord
from hearthd.server.services.deployment import Deployment
from hearthd.server.services.model_pool import ModelPool
from hearthd.server.services.service import fingerprint
from tests.fake_runtime import FakeRuntime, open_gate
from tests.patience import PATIENCE
from tests.server import fakes
from tests.server.generate_client import LIBRARY

if TYPE_CHECKING:
    import threading

    import httpx
    import tokenizers

    from hearthd.server.services.language_service import LocalLanguageService

OWN = 100_000_000  # bytes that each model takes


@dataclass(kw_only=True)
class FakeModel:
    """A model that can be loaded; `opened` has every service so far.

    A load waits while `gate` is not set, and raises `error` if there is one. Another `spread` is
    another bundle.
    The self-test fails if `golden_spread` differs from it.
    """

    name: str
    spread: float = 3.0
    gate: threading.Event = field(default_factory=open_gate)
    error: Exception | None = None
    golden_spread: float | None = None
    tokenizer: tokenizers.Tokenizer = LIBRARY
    fields: dict[str, Any] = field(default_factory=dict)
    opened: list[LocalLanguageService] = field(default_factory=list)

    def open(self, reserved: int = 0) -> LocalLanguageService:
        """Open the model, as an Opener does."""
        assert self.gate.wait(PATIENCE)
        if self.error:
            raise self.error
        service = self._service()
        service.memory = OWN
        self.reserved = reserved
        self.opened.append(service)
        return service

    def deployment(self) -> Deployment:
        """The model, unloaded."""
        return Deployment(self.name, self.open, manifest=self._service().manifest)

    def _service(self) -> LocalLanguageService:
        fields = {"slots": 4, "batch": 4, "spread": self.spread, **self.fields}
        if self.golden_spread is not None:
            size = self.tokenizer.get_vocab_size()
            twin = FakeRuntime(vocab_size=size, context=64, spread=self.golden_spread)
            fields["golden"] = fakes.golden_of(twin)
        service = fakes.fake_service(self.tokenizer, name=self.name, **fields)
        manifest = service.manifest
        footprint = replace(manifest.footprint, read=OWN - manifest.own_memory)
        files = manifest.files
        if self.fields.get("template"):
            files = (FileRecord(name=CHAT_TEMPLATE, bytes=1, sha256=""),)
        service.manifest = replace(manifest, footprint=footprint, files=files)
        service.fingerprint = fingerprint(service.manifest)
        return service


def pool(
    *models: FakeModel, room: int | None = None, idle_timeout: float | None = None, **options: Any
) -> ModelPool:
    """A pool of the models, opened, with memory for `room` of them at a time."""
    memory = None if room is None else SHARED_MEMORY + room * OWN + OWN // 2
    deployments = [model.deployment() for model in models]
    for deployment in deployments:
        deployment.idle_timeout = idle_timeout
    made = ModelPool(deployments, memory=memory, **options)
    made.open()
    return made


def statuses(client: httpx.Client) -> dict[str, str]:
    """The status of each model."""
    listed = client.get("/v1/models").json()["data"]
    return {
        model["id"]: "failed" if "failed" in model["status"] else model["status"]["value"]
        for model in listed
    }


def complete(client: httpx.Client, model: str, tokens: int = 5, **body: Any) -> dict[str, Any]:
    """An answer with log-probabilities, which tell the bundle and its bits."""
    body = {"prompt": "the dog", "temperature": 0, "logprobs": 0, "max_tokens": tokens, **body}
    response = client.post("/v1/completions", json={"model": model, **body})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    assert answer["model"] == model
    return answer


def words(answer: dict[str, Any]) -> tuple[str, list[float]]:
    """The text of an answer, and the log-probabilities of its tokens."""
    (choice,) = answer["choices"]
    return choice["text"], choice["logprobs"]["token_logprobs"]
