"""`serve BUNDLE`: the command line of the server."""

import logging
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from models.bundle import TOKENIZER, BundleError
from server.app import create_app
from server.runtime.load import open_bundle
from server.runtime.selftest import Verdict
from server.service import Service, version
from server.serving import CannotListen, DrainingServer, bind, url
from server.settings import Settings
from server.text.chat import ChatTemplate
from server.text.tokenizer import Tokenizer

command = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@command.command(name="serve")
def _serve(
    bundle: Annotated[
        Path | None, typer.Argument(help="The directory that `bake` wrote.", show_default=False)
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on [default: 127.0.0.1, this machine]")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Port to listen on; 0 takes a free one [default: 8080]")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="CPU threads [default: one per physical core]")
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(help="debug, info, warning or error [default: info]")
    ] = None,
) -> None:
    """Serve a baked model over HTTP.

    Prints one line with the address when the bundle is loaded and checked. Then, from another
    terminal:

    \b
      curl http://127.0.0.1:8080/generate -H 'content-type: application/json' \\
        -d '{"prompt": "The capital of France is", "max_tokens": 16}'
      curl http://127.0.0.1:8080/health

    Every option has an environment variable: HEARTH_PORT for --port, and so on.

    SIGTERM and Ctrl-C finish the accepted requests and exit; a second one exits at once.
    """
    flags: dict[str, Any] = {
        "bundle": bundle,
        "host": host,
        "port": port,
        "threads": threads,
        "log_level": log_level,
    }
    try:
        settings = Settings(**{name: value for name, value in flags.items() if value is not None})
    except ValidationError as error:
        raise typer.BadParameter(_settings_problem(error)) from error
    try:
        run(settings)
    except (BundleError, CannotListen) as error:
        print(f"serve: {error}", file=sys.stderr)  # noqa: T201
        raise typer.Exit(1) from error


def run(settings: Settings) -> None:
    """Load the bundle and serve it; raises BundleError or CannotListen."""
    _configure_logs(settings.log_level)
    began = time.perf_counter()
    # Taken first: a port in use is found before the bundle is loaded.
    bound = bind(settings.host, settings.port)
    manifest, runtime = open_bundle(settings.bundle, threads=settings.threads)
    tokenizer = Tokenizer.from_file(settings.bundle / TOKENIZER, bos=manifest.special_tokens.bos)
    template = ChatTemplate.from_bundle(settings.bundle, tokenizer, manifest.special_tokens)
    name = settings.bundle.resolve().name
    service = Service(runtime, tokenizer, manifest, name=name, template=template)

    def announce(verdict: Verdict) -> None:
        if verdict.passed:
            print(  # noqa: T201
                f"Hearth {version()} serves {manifest.architecture} ({manifest.precision}) at "
                f"{url(bound)} (ready after {time.perf_counter() - began:.1f} s)",
                flush=True,
            )
        else:
            print(f"serve: {verdict.message}", file=sys.stderr, flush=True)  # noqa: T201

    DrainingServer(create_app(service, on_verdict=announce), service).serve_on(bound)


def main() -> None:
    """The entry point `serve`."""
    command(prog_name="serve")


def _configure_logs(level: str) -> None:
    logging.basicConfig(
        level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    if level != "debug":  # its info is about processes, not about requests
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)


def _settings_problem(error: ValidationError) -> str:
    problem = error.errors()[0]
    name = str(problem["loc"][0])
    if problem["type"] == "missing":
        return f"{name.upper()} is missing: name the directory that `bake` wrote"
    return f"{name}: {problem['msg']}, got {problem['input']!r}"
