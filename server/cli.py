"""`hearth serve`: read the settings, open the bundle and run the server."""

import gc
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from models.bundle import BundleError
from runtime.self_test import Verdict
from server import flags, logs
from server.engine.prefix_store import CannotStore
from server.open_service import open_service
from server.process.draining_server import DrainingServer
from server.process.lazy_imports import build_models_lazily
from server.process.listening import CannotListen, Tls, bind, url
from server.services.deployment import Deployment
from server.settings import (
    BadSettings,
    Loaded,
    Settings,
    as_toml,
    load,
    read_keys,
)
from server.version import version

# Exceptions that end the command, each with its exit code: see hearth/cli.py.
ERRORS: dict[type[Exception], int] = {
    BadSettings: 2,
    BundleError: 1,
    CannotListen: 1,
    CannotStore: 1,
}

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(cls=flags.GroupedOptions)
@flags.takes(Settings, leave_out=frozenset({"bundle"}))
def _serve(
    bundle: Annotated[
        Path | None,
        typer.Argument(
            metavar="BUNDLE", help="Folder that `hearth bake` wrote.", show_default=False
        ),
    ] = None,
    *,
    print_config: Annotated[
        bool,
        typer.Option(
            "--print-config",
            help="Print the settings as TOML, with the source of each, and exit.",
        ),
    ] = False,
    **options: Any,
) -> None:
    """Serve a bundle over HTTP.

    Prints one line with the address when the bundle is loaded and its self-test has passed. The
    chat page is at that address. Requests from another terminal:

    \b
        curl http://127.0.0.1:8080/generate -H 'content-type: application/json' \\
          -d '{"prompt": "The capital of France is", "max_tokens": 16}'
        curl http://127.0.0.1:8080/health

    A bundle of array functions, such as `hearth bake gru` writes, is served at POST /run:

    \b
        curl http://127.0.0.1:8080/run -H 'content-type: application/json' \\
          -d '{"function": "step", "inputs": {"x": [[0.5, -0.25]]}}'

    Every option can also be set by an environment variable (HEARTH_PORT for --port) or in the
    TOML file that --config names (port = 8080). Flags override the environment, and the
    environment overrides the file. Sizes are in bytes, or have a unit, such as 512MiB.

    SIGTERM and Ctrl-C stop accepting requests, finish the accepted ones and exit; a second signal
    exits at once. SIGHUP reloads the bundle: the server opens the folder again and switches to the
    new bundle if its self-test passes.
    """
    loaded = load(flags.typed_values(Settings, {"bundle": bundle, **options}))
    keys = read_keys(loaded.settings)
    if print_config:
        print(as_toml(loaded), end="")  # noqa: T201
    else:
        run(loaded, keys)


def run(loaded: Loaded, api_keys: tuple[str, ...]) -> None:
    """Open the bundle and serve it; raises the exceptions in ERRORS."""
    settings = loaded.settings
    logs.configure(settings.log_level, settings.log_format)
    start = time.perf_counter()
    # A port in use must be reported before the bundle is loaded, which takes longer.
    tls = None
    if settings.tls_cert and settings.tls_key:
        tls = Tls(certificate=settings.tls_cert, key=settings.tls_key)
    bound = bind(settings.host, settings.port)
    # What is loaded here lives until the end. The garbage collector would search it for nothing,
    # and would later stop every thread, and thus every stream, for 55 ms.
    gc.disable()
    deployment = Deployment(open_service(loaded), lambda: open_service(loaded), settings.bundle)
    deployment.current.test()
    # The self-test runs mostly outside Python, so the routes are imported at the same time.
    build_models_lazily()
    from server.app import Guards, create_app

    manifest = deployment.current.manifest

    def announce(verdict: Verdict) -> None:
        if verdict.passed:
            print(  # noqa: T201
                f"Hearth {version()} serves {manifest.architecture} ({manifest.precision}) at "
                f"{url(bound, tls)} (ready after {time.perf_counter() - start:.1f} s)",
                flush=True,
            )
        else:
            print(f"hearth serve: {verdict.message}", file=sys.stderr, flush=True)  # noqa: T201

    guards = Guards(
        api_keys=api_keys,
        cors_origins=settings.cors_origins,
        max_body_bytes=settings.max_body_bytes,
        strict_fields=settings.strict_fields,
    )
    server = DrainingServer(
        create_app(deployment, on_verdict=announce, guards=guards, webui=settings.webui),
        deployment,
        shutdown_timeout=settings.shutdown_timeout,
        client_timeout=settings.client_timeout,
        tls=tls,
    )
    gc.freeze()
    gc.enable()
    server.serve_on(bound)
    gc.unfreeze()
