"""`serve BUNDLE`: the command line of the server."""

import gc
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from models.bundle import ArraysManifest, BundleError, read_manifest
from runtime.self_test import Verdict
from server import flags, logs
from server.engine.prefix_store import CannotStore
from server.process.lazy_models import build_models_when_used
from server.process.lifecycle import CannotListen, DrainingServer, Tls, bind, url
from server.services.array_service import open_array_service
from server.services.bundle_service import Served, version
from server.services.deployment import Deployment
from server.services.language_service import EngineOptions, open_service
from server.settings import (
    BadSettings,
    Loaded,
    Settings,
    as_toml,
    load,
    read_keys,
    refuse_language_only,
)

command = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)


@command.command(name="serve")
@flags.takes(Settings, leave_out=frozenset({"bundle"}))
def _serve(
    bundle: Annotated[
        Path | None, typer.Argument(help="The directory that `bake` wrote.", show_default=False)
    ] = None,
    *,
    print_config: Annotated[
        bool,
        typer.Option("--print-config", help="Print the settings as TOML, each with its source."),
    ] = False,
    **options: Any,
) -> None:
    """Serve a baked model over HTTP.

    Prints one line with the address when the bundle is loaded and checked. Then, from another
    terminal:

    \b
        curl http://127.0.0.1:8080/generate -H 'content-type: application/json' \\
          -d '{"prompt": "The capital of France is", "max_tokens": 16}'
        curl http://127.0.0.1:8080/health

    A bundle of functions on arrays, such as `bake gru` makes, is served by POST /run:

    \b
        curl http://127.0.0.1:8080/run -H 'content-type: application/json' \\
          -d '{"function": "step", "inputs": {"x": [[0.5, -0.25]]}}'

    Every option has an environment variable, HEARTH_PORT for --port, and a key in the file of
    --config, port = 8080. Flags win over the environment, and that over the file. Sizes are bytes,
    or have a unit: 512MiB.

    SIGTERM and Ctrl-C finish the accepted requests and exit; a second one exits at once. SIGHUP
    loads the bundle anew, beside the one that is served, and serves it if its self-test passes.
    """
    typed = flags.given(Settings, {"bundle": bundle, **options})
    try:
        loaded = load(typed)
        keys = read_keys(loaded.settings)
    except BadSettings as error:
        print(f"serve: {error}: see serve --help", file=sys.stderr)  # noqa: T201
        raise typer.Exit(2) from error
    if print_config:
        print(as_toml(loaded), end="")  # noqa: T201
        return
    try:
        run(loaded, keys)
    except BadSettings as error:
        print(f"serve: {error}: see serve --help", file=sys.stderr)  # noqa: T201
        raise typer.Exit(2) from error
    except (BundleError, CannotListen, CannotStore) as error:
        print(f"serve: {error}", file=sys.stderr)  # noqa: T201
        raise typer.Exit(1) from error


def run(loaded: Loaded, api_keys: tuple[str, ...]) -> None:
    """Load the bundle and serve it.

    Raises BadSettings, BundleError, CannotListen or CannotStore.
    """
    settings = loaded.settings
    logs.configure(settings.log_level, settings.log_format)
    began = time.perf_counter()
    # First what fails fast: a port in use is found before the bundle is loaded.
    tls = None
    if settings.tls_cert and settings.tls_key:
        tls = Tls(certificate=settings.tls_cert, key=settings.tls_key)
    bound = bind(settings.host, settings.port)
    # What is loaded stays to the end. Looking through it for garbage would find none, and would
    # later stop every thread, and so every stream, for 55 ms.
    gc.disable()
    deployment = Deployment(_open(loaded), lambda: _open(loaded), settings.bundle)
    deployment.current.test()
    # The test leaves Python alone for most of its time, and importing all routes takes as long.
    build_models_when_used()
    from server.app import Guards, create_app

    manifest = deployment.current.manifest

    def announce(verdict: Verdict) -> None:
        if verdict.passed:
            print(  # noqa: T201
                f"Hearth {version()} serves {manifest.architecture} ({manifest.precision}) at "
                f"{url(bound, tls)} (ready after {time.perf_counter() - began:.1f} s)",
                flush=True,
            )
        else:
            print(f"serve: {verdict.message}", file=sys.stderr, flush=True)  # noqa: T201

    guards = Guards(
        api_keys=api_keys,
        cors_origins=settings.cors_origins,
        max_body_bytes=settings.max_body_bytes,
    )
    server = DrainingServer(
        create_app(deployment, on_verdict=announce, guards=guards),
        deployment,
        shutdown_timeout=settings.shutdown_timeout,
        client_timeout=settings.client_timeout,
        tls=tls,
    )
    gc.freeze()
    gc.enable()
    server.serve_on(bound)
    gc.unfreeze()


def _open(loaded: Loaded) -> Served:
    """The service on whichever kind of bundle it is."""
    settings = loaded.settings
    if isinstance(read_manifest(settings.bundle), ArraysManifest):
        refuse_language_only(loaded)
        return open_array_service(
            settings.bundle,
            threads=settings.threads,
            queue_limit=settings.queue_limit,
            name=settings.alias,
            level=settings.self_test,
        )
    return open_service(
        settings.bundle,
        threads=settings.threads,
        name=settings.alias,
        level=settings.self_test,
        options=EngineOptions(
            queue_limit=settings.queue_limit,
            speculation=settings.speculation,
            exact_logits=settings.logits == "exact",
            cache_ram=settings.cache_ram,
            cache_dir=settings.cache_dir,
            cache_disk=settings.cache_disk,
            max_memory=settings.max_memory,
        ),
    )


def main() -> None:
    """The entry point `serve`."""
    command(prog_name="serve")
