"""The ASGI application: routes, error handlers and middleware around a pool of models.

Importing this loads neither the baker, nor the model DSL, nor a compiler.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastapi import APIRouter, FastAPI
from starlette.middleware.cors import CORSMiddleware

from hearthd.server import web
from hearthd.server.api import http_errors, openapi
from hearthd.server.api.anthropic import batches, messages
from hearthd.server.api.anthropic.batch_runner import BatchRunner
from hearthd.server.api.anthropic.error_bodies import AnthropicErrors
from hearthd.server.api.anthropic.events import MessageEvent
from hearthd.server.api.current_service import Leases
from hearthd.server.api.form_body import FormRoute
from hearthd.server.api.gemini import embed_content, generate_content
from hearthd.server.api.gemini import model_list as gemini_models
from hearthd.server.api.gemini.answers import GenerateContentAnswer
from hearthd.server.api.gemini.error_bodies import GeminiErrors
from hearthd.server.api.llama_server import completion_route, embedding, loading, lora_adapters
from hearthd.server.api.llama_server.answers import CompletionEvent
from hearthd.server.api.lm_studio import model_list as lm_studio_models
from hearthd.server.api.middleware import access_log
from hearthd.server.api.middleware.api_keys import ApiKeys
from hearthd.server.api.middleware.body_limits import BodyLimit
from hearthd.server.api.middleware.error_forms import ErrorForms
from hearthd.server.api.middleware.head_requests import HeadRequests
from hearthd.server.api.middleware.host_names import HostNames
from hearthd.server.api.middleware.path_aliases import PathAliases
from hearthd.server.api.middleware.path_prefix import PathPrefix
from hearthd.server.api.middleware.request_targets import RequestTargets
from hearthd.server.api.mistral import fim
from hearthd.server.api.native import generate, rerank, run_function, tokens
from hearthd.server.api.native.array_bodies import FUNCTION, OUTPUTS
from hearthd.server.api.ollama import chat as ollama_chat
from hearthd.server.api.ollama import create as ollama_create
from hearthd.server.api.ollama import embed as ollama_embed
from hearthd.server.api.ollama import generate as ollama_generate
from hearthd.server.api.ollama import manage as ollama_manage
from hearthd.server.api.ollama import model_list as ollama_models
from hearthd.server.api.ollama.error_bodies import OllamaErrors
from hearthd.server.api.openai import (
    chat,
    compaction,
    completions,
    embeddings,
    input_tokens,
    model_list,
    responses,
    transcriptions,
)
from hearthd.server.api.openai.response_events import ResponseEvent
from hearthd.server.api.operator import props, reload, status
from hearthd.server.api.resumable import routes as resumable
from hearthd.server.api.resumable.middleware import ResumableStreams
from hearthd.server.api.resumable.streams import Streams
from hearthd.server.api.stored.store import Store
from hearthd.server.api.stored_routes import conversations, stored_responses
from hearthd.server.fault_isolation import contained
from hearthd.server.version import version

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping
    from pathlib import Path
    from types import ModuleType

    from pydantic import BaseModel
    from starlette.routing import BaseRoute

    from hearthd.server.services.model_kind import Kind
    from hearthd.server.services.model_pool import ModelPool


_LANGUAGE = (
    generate,
    completions,
    chat,
    responses,
    compaction,
    input_tokens,
    stored_responses,
    conversations,
    messages,
    batches,
    fim,
    completion_route,
    tokens,
    props,
    lora_adapters,
    ollama_chat,
    ollama_generate,
    generate_content,
)
_ENCODERS = (embeddings, embedding, rerank, ollama_embed, embed_content)
_SPEECH = (transcriptions,)
_STREAMS = (resumable,)
_ARRAYS = (run_function,)
# What to serve for the routes that the models of a server lack.
_MISSING = {
    _LANGUAGE: "a language model",
    _ENCODERS: "an encoder or a language model",
    _SPEECH: "a model of speech, such as hf:openai/whisper-small",
    _ARRAYS: "array functions",
}
_MANAGED = (ollama_models, ollama_manage, ollama_create, lm_studio_models, gemini_models)
_ALL = (model_list, loading, status, reload, *_MANAGED)

_EVENTS: Mapping[Kind, tuple[type[BaseModel], ...]] = {
    "language": (
        generate.StreamEvent, chat.ChatChunk, ResponseEvent, MessageEvent, CompletionEvent,
        GenerateContentAnswer,
    ),
    "listening": (transcriptions.TranscriptEvent,),
    "speech": (transcriptions.TranscriptEvent,),
}  # fmt: skip

# Open without an API key: the probes, the names of the models, the description of the API, and the
# chat page, which asks the user for the key.
OPEN_PATHS = frozenset({"/health", "/health/ready", "/v1/models", openapi.PATH, *web.FILES})

UPLOAD_PATHS = frozenset(
    route.path
    for surface in _SPEECH
    for route in surface.router.routes
    if isinstance(route, FormRoute)
)

# Probes and files of the page: requests that succeed would fill the log.
_QUIET_PATHS = frozenset({"/health", "/health/ready", "/metrics", *web.FILES})

_LOCAL_ORIGIN = r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?"


@dataclass(frozen=True, kw_only=True)
class Guards:
    """Limits of access.

    api_keys        every request must have one of these keys; empty for no keys
    cors_origins    origins of web pages that may send requests; "*" allows any, "localhost" all
                    of this machine
    strict_fields   reject fields that have no effect
    slots           answer /slots
    share_cache     let all API keys share the prefix cache
    """

    api_keys: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    strict_fields: bool = False
    slots: bool = True
    share_cache: bool = False


def create_app(
    pool: ModelPool,
    *,
    on_start: Callable[[], object] = lambda: None,
    guards: Guards = Guards(),
    webui: bool = True,
    store: Store | None = None,
    prefix: str = "",
    home: Path | None = None,
) -> FastAPI:
    """Create the ASGI application that serves a pool of models.

    Its lifespan starts and stops the pool. While the self-test of a model runs, its requests get
    status 503. `on_start` is called when the pool is started. `webui` says whether the chat page
    is served. `store` keeps responses, conversations and batches; None for memory. Every path
    begins with `prefix`, such as /llm. `home` is the folder of the bundles that clients may change;
    None for no such folder.
    """
    app = FastAPI(
        title="Hearth",
        version=version(),
        summary=openapi.SUMMARY,
        openapi_tags=openapi.TAGS,
        # Relative to the document, whatever prefix a proxy adds.
        servers=[{"url": "."}],
        openapi_url=None,
        redirect_slashes=False,  # to the host that the request names: see http_errors.py
        lifespan=lambda app: _lifespan(app, pool, on_start),
    )
    app.state.pool = pool
    app.state.store = store = store or Store()
    app.state.streams = Streams()
    app.state.batches = BatchRunner(app, pool, store, prefix)
    app.state.home, app.state.prefix = home, prefix
    app.state.has_keys = bool(guards.api_keys)
    app.state.strict_fields = guards.strict_fields
    app.state.shows_slots = guards.slots
    app.state.shares_cache = guards.share_cache
    http_errors.install(app)
    kinds = pool.kinds()
    for router in (*_routers(kinds), web.router(chat=webui and "language" in kinds)):
        # Not by include_router, which would analyze each route again, at the first request.
        app.router.routes.extend(router.routes)
    app.state.missing_routes = tuple(_missing_routes(kinds))
    openapi.add_events(app, {event for kind in kinds for event in _EVENTS.get(kind, ())})
    if guards.api_keys:
        openapi.require_key(app)
    openapi.add_route(app)
    _guard(app, pool, guards, prefix)
    return app


@contextlib.asynccontextmanager
async def _lifespan(
    app: FastAPI, pool: ModelPool, on_start: Callable[[], object]
) -> AsyncIterator[None]:
    async def start() -> None:
        await pool.start()
        app.state.batches.resume()
        with contained("the announcement of the start"):  # such as a print to a closed pipe
            on_start()

    starting = asyncio.create_task(start())
    try:
        yield
        await starting
    finally:
        app.state.streams.stop_all()
        await app.state.batches.stop()
        await pool.stop()


def _surfaces(kinds: set[Kind]) -> tuple[ModuleType, ...]:
    return (
        *(_LANGUAGE if "language" in kinds else ()),
        *(_ENCODERS if kinds & {"language", "encoder"} else ()),
        *(_SPEECH if kinds & {"speech", "listening"} else ()),
        *(_STREAMS if kinds & {"language", "speech"} else ()),
        *(_ARRAYS if "arrays" in kinds else ()),
        *_ALL,
    )


def _routers(kinds: set[Kind]) -> Iterator[APIRouter]:
    """The routes for models of these kinds."""
    for surface in _surfaces(kinds):
        yield surface.router


def _missing_routes(kinds: set[Kind]) -> Iterator[tuple[BaseRoute, str]]:
    """The routes for models of other kinds, each with the models that it needs."""
    served = _surfaces(kinds)
    for surfaces, needed in _MISSING.items():
        if surfaces[0] not in served:
            for surface in surfaces:
                yield from ((route, needed) for route in surface.router.routes)


def _guard(app: FastAPI, pool: ModelPool, guards: Guards, prefix: str) -> None:
    """Add the middleware, the innermost first."""
    app.add_middleware(HeadRequests)
    app.add_middleware(Leases)
    streams = app.state.streams
    app.add_middleware(
        BodyLimit,
        max_bytes=pool.max_body_bytes,
        memory=lambda: pool.request_memory,
        streams=streams,
        upload_paths=UPLOAD_PATHS,
        connections=lambda: pool.connection_memory.of_requests,
    )
    app.add_middleware(ResumableStreams, streams=streams, has_keys=bool(guards.api_keys))
    if guards.api_keys:
        app.add_middleware(ApiKeys, keys=guards.api_keys, open_paths=OPEN_PATHS)
    if guards.cors_origins:
        # Outside of the key check, because a browser sends preflight requests without a key.
        app.add_middleware(
            CORSMiddleware,
            allow_origins=guards.cors_origins,
            allow_origin_regex=_LOCAL_ORIGIN if "localhost" in guards.cors_origins else None,
            # Any page could use what a proxy knows a browser by, such as its cookies.
            allow_credentials="*" not in guards.cors_origins,
            allow_methods=["GET", "HEAD", "POST", "DELETE", "OPTIONS"],
            allow_headers=["*"],
            expose_headers=[access_log.HEADER, "Retry-After", "Warning", FUNCTION, OUTPUTS],
        )
    app.add_middleware(PathAliases)
    if prefix:
        app.add_middleware(PathPrefix, prefix=prefix)
    if not guards.api_keys:
        app.add_middleware(HostNames)
    app.add_middleware(RequestTargets)
    app.add_middleware(access_log.Access, count=pool.metrics.answered, quiet=_QUIET_PATHS)
    app.add_middleware(ErrorForms, forms=(AnthropicErrors(), OllamaErrors(), GeminiErrors()))
