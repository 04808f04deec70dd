"""A plugin of pytest: tests that start a fake server get a cluster in place of one process.

python -m pytest -p tests.cluster.on_cluster tests/server/api/openai/test_openai_chat.py
"""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import httpx
import pytest
from ray import serve
from typing_extensions import override

from hearthd.server.cluster import application
from hearthd.server.cluster.bundles import Bundle, Bundles, TextParts
from hearthd.server.cluster.front import Front
from hearthd.server.services.engine_options import EngineOptions
from hearthd.server.services.language_service import LocalLanguageService
from hearthd.server.services.service import fingerprint
from hearthd.server.settings import Settings
from hearthd.text.templates.chat_template import ChatTemplate
from hearthd.text.tokenizer import Tokenizer
from tests.cluster.local_cluster import local_cluster
from tests.server import fakes

if TYPE_CHECKING:
    from collections.abc import Iterator

    import tokenizers
    from starlette.types import ASGIApp, Receive, Scope, Send

    from hearthd.bundle import LanguageManifest
    from tests.cluster.local_cluster import LocalCluster
    from tests.fake_runtime import FakeRuntime

_NUMBERS = itertools.count()
# Tests that a cluster cannot pass, and why.
_CANNOT = {
    "test_a_draining_server_maps_to_openais_exception": "drains a service of the test's process",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Called by pytest: skip the tests that a cluster cannot pass."""
    for item in items:
        if reason := _CANNOT.get(item.name):
            item.add_marker(pytest.mark.skip(reason=reason))


@dataclass(frozen=True)
class PickledBundle(Bundles):
    """The parts of a service that can be sent to another process; opens a service like it."""

    runtime: FakeRuntime
    library: tokenizers.Tokenizer
    manifest: LanguageManifest
    template: str
    name: str

    def describe(self) -> Bundle:
        """The bundle."""
        return Bundle(
            id=f"{fingerprint(self.manifest)}:{id(self)}",
            name=self.name,
            slots=self.runtime.slots,
            chunk=self.runtime.chunk,
            memory=0,
        )

    @override
    def open_model(self, bundle: Bundle) -> LocalLanguageService:
        tokenizer, template = self._text()
        return LocalLanguageService(
            self.runtime,
            tokenizer,
            self.manifest,
            EngineOptions(speculation="off"),
            name=self.name,
            template=template,
        )

    @override
    def open_text(self, bundle: Bundle) -> TextParts:
        return TextParts(self.manifest, *self._text())

    def _text(self) -> tuple[Tokenizer, ChatTemplate | None]:
        bos = self.manifest.special_tokens.bos
        tokenizer = Tokenizer(self.library, bos=bos, context=self.manifest.context)
        template = None
        if self.template:
            template = ChatTemplate(self.template, tokenizer, eos=fakes.EOS)
        return tokenizer, template


class PrefixedFront(Front):
    """A front below a path of its own, so that several applications run at a time."""

    @override
    def __serve_build_asgi_app__(self) -> ASGIApp:
        """Called by Ray."""
        app = super().__serve_build_asgi_app__()

        async def without_prefix(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                path = scope["path"].removeprefix(scope["root_path"])
                path = f"/{path.lstrip('/')}"
                scope = {**scope, "path": path, "raw_path": path.encode(), "root_path": ""}
            await app(scope, receive, send)

        return without_prefix


@pytest.fixture(scope="session", autouse=True)
def _on_cluster() -> Iterator[None]:
    with local_cluster() as cluster, pytest.MonkeyPatch.context() as patch:
        patch.setattr(application, "FRONT", serve.ingress()(PrefixedFront))
        patch.setattr(fakes, "running", lambda service, **_: _running(cluster, service))
        yield


@contextlib.contextmanager
def _running(cluster: LocalCluster, service: Any) -> Iterator[httpx.Client]:
    assert isinstance(service, LocalLanguageService)
    bundle = PickledBundle(
        cast("FakeRuntime", service._runtime),
        service.tokenizer._tokenizer,
        service.manifest,
        service.description.chat_template,
        service.name,
    )
    settings = Settings(bundle=("/nowhere",), threads=1, shutdown_timeout=1)
    app = application.application(bundle, settings, [bundle.describe()], application.Scale())
    name = f"app{next(_NUMBERS)}"
    serve.run(app, name=name, route_prefix=f"/{name}")
    try:
        with httpx.Client(base_url=f"{cluster.url}/{name}", timeout=30) as client:
            cluster.wait_until(lambda: client.get("/health/ready").status_code == 200)
            yield client
    finally:
        serve.delete(name)
