"""`hearth serve`: read the settings, open the bundle and run the server."""

import contextlib
import functools
import gc
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from hearthd import flags
from hearthd.bake_flags import BakesFirst
from hearthd.bundle import BundleError, bundle_home
from hearthd.find_or_bake import MODEL_HELP, find, find_or_bake
from hearthd.flag_names import flag
from hearthd.later_verification import LaterVerification
from hearthd.model_weights import is_elsewhere
from hearthd.runtime.checks.self_test import Verdict
from hearthd.runtime.system.free_memory import bound_free_memory
from hearthd.server import logs
from hearthd.server.api.stored.store import CannotOpenState, Store
from hearthd.server.engine.prefixes.prefix_store import CannotStore
from hearthd.server.environment import ignored_variables
from hearthd.server.open_service import open_pool, state_size
from hearthd.server.process.draining_server import DrainingServer
from hearthd.server.process.lazy_imports import build_models_lazily
from hearthd.server.process.listening import CannotListen, Tls, bound_sockets, url
from hearthd.server.services.deployment import Deployment
from hearthd.server.services.model_pool import ModelPool
from hearthd.server.setting_files import read_keys, require_files
from hearthd.server.settings import SAMPLING_GROUP, BadSettings, LoadedSettings, Settings, load
from hearthd.server.settings_as_toml import as_toml
from hearthd.server.version import version

log = logging.getLogger(__name__)

# Exceptions that end the command, each with its exit code: see hearthd/cli.py.
ERRORS: dict[type[Exception], int] = {
    BadSettings: 2,
    BundleError: 1,
    CannotListen: 1,
    CannotStore: 1,
    CannotOpenState: 1,
}

_Bundles = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="MODEL",
        autocompletion=bundle_home.completed_names,
        help=f"{MODEL_HELP} Or a folder of bundles. Default: all bundles in --home.",
        show_default=False,
    ),
]
_PrintConfig = Annotated[
    bool,
    typer.Option(
        "--print-config", help="Print the settings as TOML, with the source of each, and exit."
    ),
]

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(cls=BakesFirst)
@flags.takes(Settings, leave_out=frozenset({"bundle"}), group=SAMPLING_GROUP)
def _serve(
    context_: typer.Context,
    bundle: _Bundles = None,
    *,
    print_config: _PrintConfig = False,
    **options: Any,
) -> None:
    """Serve bundles over HTTP.

    Prints one line with the address when the first bundle is loaded and its self-test has passed.
    The chat page is at that address. A request from another terminal:

    \b
        curl http://127.0.0.1:8080/generate -H 'content-type: application/json' \\
          -d '{"prompt": "The capital of France is", "max_tokens": 16}'

    A bundle of array functions, such as `hearth bake gru` writes, is served at POST /run:

    \b
        curl http://127.0.0.1:8080/run -H 'content-type: application/json' \\
          -d '{"function": "step", "inputs": {"x": [[0.5, -0.25]]}}'

    A model that is not a bundle is baked first, with the options of a bake that are given here, and
    kept in --home:

    \b
        hearth serve model.gguf --context 8192

    With several bundles, the field "model" of a request names one by its folder. Bundles are loaded
    when they are requested, and unloaded when others need the memory:

    \b
        hearth serve gemma3-270m smollm2-135m --max-memory 1GiB --pin gemma3-270m

    Every option can also be set by an environment variable (HEARTH_PORT for --port) or in the TOML
    file of --config (port = 8080). Flags override the environment, which overrides the file. Sizes
    are in bytes, or have a unit, such as 512MiB.

    SIGTERM and Ctrl-C stop accepting requests, finish the accepted ones and exit; a second signal
    exits at once. SIGHUP reloads the bundles: the server opens each folder again and switches to
    the new bundle if its self-test passes. It also reads --tls-cert and --tls-key again.
    """
    loaded = load(flags.typed_values(Settings, {"bundle": bundle, **options}))
    keys = read_keys(loaded.settings)
    if print_config:
        print(as_toml(loaded), end="")  # noqa: T201
    else:
        run(loaded, keys, context_.obj)


def run(loaded: LoadedSettings, api_keys: tuple[str, ...], bake: Mapping[str, str]) -> None:
    """Open the bundles and serve them; raises the exceptions in ERRORS.

    `bake` are options for models that are baked first, as in find_or_bake.
    """
    settings = loaded.settings
    bound_free_memory()
    logs.configure(settings.log_level, settings.log_format)
    logs.report_crashes()
    if ignored := ignored_variables(os.environ):
        log.warning(ignored)
    start = time.perf_counter()
    # A port in use must be reported before the bundle is loaded, which takes longer.
    tls = None
    if settings.tls_cert and settings.tls_key:
        tls = Tls(certificate=settings.tls_cert, key=settings.tls_key)
    with bound_sockets(settings.host, settings.port) as sockets:
        require_files(settings)  # reports a missing one before a download or a bake
        loaded = with_bundles(loaded, bake)
        # What is loaded here lives until the end. The garbage collector would search it for
        # nothing, and would later stop every thread, and thus every stream, for 55 ms.
        gc.disable()
        store = Store(settings.state_dir, limit=state_size(loaded))
        pool = open_pool(loaded, store.memory)

        def announce() -> None:
            address = url(sockets[0], tls, settings.api_prefix)
            _announce(pool, settings.log_format, address, time.perf_counter() - start)
            for deployment in pool:
                if deployment.folder is not None:
                    passed = functools.partial(_note_comparison, deployment)
                    LaterVerification(deployment.folder, passed).begin()

        server = _server(settings, api_keys, pool, store, tls, announce)
        gc.freeze()
        gc.enable()
        server.serve_on(*sockets)
        gc.unfreeze()
        store.close()


def _server(
    settings: Settings,
    api_keys: tuple[str, ...],
    pool: ModelPool,
    store: Store,
    tls: Tls | None,
    announce: Callable[[], None],
) -> DrainingServer:
    # The self-test runs mostly outside Python, so the routes are imported at the same time.
    build_models_lazily()
    from hearthd.server.app import Guards, create_app

    guards = Guards(
        api_keys=api_keys,
        cors_origins=settings.cors_origins,
        strict_fields=settings.strict_fields,
        slots=settings.slots,
        share_cache=settings.share_cache,
    )
    return DrainingServer(
        create_app(
            pool,
            on_start=announce,
            guards=guards,
            webui=settings.webui,
            store=store,
            prefix=settings.api_prefix,
            home=None if settings.bundle else bundle_home.expanded(settings.home),
        ),
        pool,
        shutdown_timeout=settings.shutdown_timeout,
        client_timeout=settings.client_timeout,
        tls=tls,
        trusted_proxies=settings.forwarded_allow_ips,
        memory=pool.connection_memory,
    )


def with_bundles(loaded: LoadedSettings, bake: Mapping[str, str]) -> LoadedSettings:
    """The settings with a bundle in place of each model, which is baked if it is missing.

    All models are found before the first is baked. Raises NotABundle, or what find_or_bake raises.
    """
    settings = loaded.settings
    if bake and not settings.bundle:
        raise flags.UsageError(
            f"{flag(next(iter(bake)))} needs MODEL; all bundles are baked already."
        )
    models = [model for model in settings.bundle if bake or not _has_bundles(model, settings.home)]
    if len(models) > 1:
        for model in sorted(models, key=is_elsewhere):  # a missing one before a download
            find(model, settings.home, bake)
    baked = {model: str(find_or_bake(model, settings.home, bake)) for model in models}
    folders = tuple(baked.get(model, model) for model in settings.bundle)
    return replace(loaded, settings=settings.model_copy(update={"bundle": folders}))


def _has_bundles(model: str, home: Path) -> bool:
    """Whether it is a folder of bundles."""
    return any(bundle_home.bundles_in(bundle_home.find_bundle(model, home)))


def _announce(pool: ModelPool, log_format: logs.LogFormat, address: str, seconds: float) -> None:
    """Print that the server is ready, on stdout, and the self-tests that failed, on stderr."""
    for deployment in pool:
        if (verdict := deployment.verdict) and not verdict.passed:
            failed = f"hearth serve: {verdict.message}"
            line = logs.announcement(log_format, failed, level=logging.ERROR, model=deployment.name)
            print(line, file=sys.stderr, flush=True)  # noqa: T201
    if pool.unavailable() is None:
        ready = (
            f"Hearth {version()} serves {_models(pool)} at {address} (ready after {seconds:.1f} s)"
        )
        line = logs.announcement(
            log_format, ready, level=logging.INFO, url=address, seconds=round(seconds, 1)
        )
        with contextlib.suppress(OSError):  # a full disk or a closed pipe ends no server
            print(line, flush=True)  # noqa: T201


def _note_comparison(deployment: Deployment, compared: Verdict) -> None:
    """Report in /health and the metrics that a bundle without golden values was compared."""
    service = deployment.current
    if service is not None and service.verdict is not None and service.verdict.level == "off":
        service.verdict = replace(compared, files=service.verdict.files)


def _models(pool: ModelPool) -> str:
    manifests = [deployment.manifest for deployment in pool]
    if len(manifests) == 1 and (manifest := manifests[0]):
        return f"{manifest.architecture} ({manifest.precision})"
    return f"{len(pool)} models"
