"""`hearth list`, `rm` and `ps`: the bundles on this machine, and the models of a server."""

import json
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Sequence
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Annotated, Any

import typer

from hearthd import flags
from hearthd.bundle import BundleError, LanguageManifest, bundle_home, read_manifest
from hearthd.server.server_url import server_url
from hearthd.server.services.bundle_files import remove_bundle
from hearthd.text.control_characters import print_line


class NoServer(Exception):
    """No server of Hearth answers at the URL."""


# Exceptions that end the commands, each with its exit code: see hearthd/cli.py.
ERRORS: dict[type[Exception], int] = {BundleError: 1, NoServer: 1}

_PORT = "HEARTH_PORT"  # as of `hearth serve`

Home = Annotated[
    Path, typer.Option(metavar="FOLDER", envvar=bundle_home.ENVIRONMENT, help=bundle_home.HELP)
]


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON list.")]


def _typer() -> typer.Typer:
    return typer.Typer(add_completion=False, rich_markup_mode=None)


list_ = _typer()
remove = _typer()
ps = _typer()


@list_.command(cls=flags.GroupedOptions)
def _list(*, home: Home = bundle_home.DEFAULT, as_json: AsJson = False) -> None:
    """List the bundles on this machine.

    \b
        hearth list --home ./bundles
    """
    bundles = [_described(bundle) for bundle in bundle_home.bundles_in(home)]
    if as_json:
        print(json.dumps(bundles))  # noqa: T201
        return
    rows = [_row(bundle) for bundle in bundles]
    if not rows:
        print_line(f"no bundles in {home}; `hearth run MODEL` bakes one")
        return
    _print_table(("NAME", "MODEL", "PRECISION", "CONTEXT", "SLOTS", "SIZE"), rows)


@remove.command(cls=flags.GroupedOptions)
def _remove(
    bundles: Annotated[
        list[Path],
        typer.Argument(
            metavar="BUNDLE",
            autocompletion=bundle_home.completed_names,
            help="Name of a bundle, or its folder.",
        ),
    ],
    *,
    home: Home = bundle_home.DEFAULT,
) -> None:
    """Remove bundles from this machine.

    A server that has loaded a bundle continues to serve it, and cannot load it again.

    \b
        hearth rm gemma3
    """
    for bundle in bundles:
        size = remove_bundle(bundle_home.named_bundle(bundle, home))
        print_line(f"removed {bundle}: {size / 1e6:.1f} MB")


@ps.command(cls=flags.GroupedOptions)
def _ps(
    *,
    url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help=f"Address of the server.  [default: 127.0.0.1:8080, or with the port in ${_PORT}]",
        ),
    ] = None,
    api_key: Annotated[
        str | None,
        typer.Option(metavar="KEY", envvar="HEARTH_API_KEY", help="API key of the server."),
    ] = None,
    ca: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="PEM file of certificates to trust, such as the server's own.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the models of a running server, and their states.

    \b
        hearth ps --url http://127.0.0.1:8080
        hearth ps --url https://server:8080 --ca ca.pem
    """
    url = server_url(url or f"127.0.0.1:{os.environ.get(_PORT) or 8080}")
    headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
    try:
        request = urllib.request.Request(f"{url}/v1/models", headers=headers)
        trusted = ssl.create_default_context(cafile=ca) if ca else None
        with urllib.request.urlopen(request, timeout=10, context=trusted) as response:
            models = json.load(response)["data"]
            rows = [_state(model["id"], model["status"]) for model in models]
    except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
        raise NoServer(f"{url}: {_problem(error)}") from error
    if as_json:
        print(json.dumps([{"name": model["id"], **model["status"]} for model in models]))  # noqa: T201
        return
    _print_table(("NAME", "STATUS", "MEMORY", "REQUESTS", "IDLE"), rows)
    for model in models:
        if problem := model["status"].get("error"):
            print_line(problem)


def _problem(error: Exception) -> str:
    """Why a server did not list its models, and what to do."""
    reason = getattr(error, "reason", error)
    if isinstance(error, urllib.error.HTTPError) and error.code == HTTPStatus.UNAUTHORIZED:
        return "the server requires an API key; pass --api-key or set HEARTH_API_KEY"
    if isinstance(reason, ssl.SSLError):
        return f"no secure connection: {reason}; --ca names the certificates to trust"
    reason = getattr(reason, "strerror", None) or reason
    remedy = "start one with `hearth serve`, or give its address with --url"
    return f"no server of Hearth answers: {reason}; {remedy}"


def _described(bundle: Path) -> dict[str, Any]:
    """A bundle as --json prints it: `error` says why it cannot be read."""
    size = sum(path.stat().st_size for path in bundle.iterdir())
    described = {"name": bundle.name, "folder": str(bundle.absolute()), "bytes": size}
    try:
        manifest = read_manifest(bundle)
    except BundleError as error:
        return {**described, "error": str(error)}
    described |= {"architecture": manifest.architecture, "precision": manifest.precision}
    if isinstance(manifest, LanguageManifest):
        described |= {"context": manifest.context, "slots": manifest.slots}
    return described


def _row(bundle: dict[str, Any]) -> tuple[str, ...]:
    size = _megabytes(bundle["bytes"])
    if "error" in bundle:
        return (bundle["name"], f"cannot be read: {bundle['error']}", "", "", "", size)
    sizes = (str(bundle.get(key, "-")) for key in ("context", "slots"))
    return (bundle["name"], bundle["architecture"], bundle["precision"], *sizes, size)


def _state(name: str, status: dict[str, Any]) -> tuple[str, ...]:
    value = "failed" if "failed" in status else status["value"]
    idle = status["idle_seconds"]
    return (
        name,
        f"{value}, pinned" if status["pinned"] else value,
        _megabytes(status["memory"]) if status["memory"] else "-",
        str(status["requests"]),
        "-" if idle is None else f"{idle:.0f} s",
    )


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


def _print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.cells import cell_len, set_cell_size  # some characters take two columns

    widths = [max(map(cell_len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        cells = (set_cell_size(cell, width) for cell, width in zip(row, widths, strict=True))
        print_line("   ".join(cells).rstrip())
