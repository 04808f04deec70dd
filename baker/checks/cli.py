"""`hearth verify` and `hearth reproduce`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from hearthd import flags
from hearthd.baker.checks import verification
from hearthd.baker.checks.reproduction import changes, reproduce
from hearthd.baker.pipeline.bake_errors import BAKE_ERRORS
from hearthd.baker.pipeline.shared_stages import ComparisonFailed
from hearthd.baker.presentation.console import open_console
from hearthd.baker.progress import TerminalProgress
from hearthd.baker.signing.checks import ExpectedSigner
from hearthd.bundle import bundle_home, read_manifest
from hearthd.later_verification import COMPARISON_FAILED
from hearthd.text.control_characters import print_line

# Exceptions that end the commands, and their exit code: see hearthd/cli.py.
ERRORS: dict[type[Exception], int] = {
    ComparisonFailed: COMPARISON_FAILED,
    **dict.fromkeys(BAKE_ERRORS, 1),
}

_Bundle = Annotated[
    Path,
    typer.Argument(
        metavar="BUNDLE",
        parser=bundle_home.named_bundle,
        autocompletion=bundle_home.completed_names,
        help=bundle_home.BUNDLE_HELP,
    ),
]

_Key = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="KEY",
        help="Require the signature of this key: a file with the public key, PEM. Repeatable: "
        "one of them must have signed. Needs hearthd[verify].",
    ),
]
_Certificate = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE",
        help="Require the signature of a certificate that leads to this root certificate, PEM. "
        "Repeatable. Needs hearthd[sign].",
    ),
]
_Identity = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Require the keyless signature of this account, such as an e-mail address. Needs "
        "--issuer, hearthd[sign] and a network.",
    ),
]
_Issuer = Annotated[
    str | None,
    typer.Option(metavar="URL", help="OpenID Connect issuer of the account."),
]

verify = typer.Typer(add_completion=False, rich_markup_mode=None)
reproduce_ = typer.Typer(add_completion=False, rich_markup_mode=None)


@verify.command(
    cls=flags.GroupedOptions,
    epilog="Example:\n\n\b\n    hearth verify gemma3-270m --key public.pem",
)
def _verify(
    bundle: _Bundle,
    *,
    key: _Key = None,
    certificate: _Certificate = None,
    identity: _Identity = None,
    issuer: _Issuer = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print one JSON object: for each program, how far its values are from the golden "
            "values.",
        ),
    ] = False,
) -> None:
    """Check that a bundle is intact and correct on this CPU.

    Checks the digest of every file, the program's target, the traced graph, the weights if their
    package is installed and, if this machine can run the program, all golden values. Also prints
    what changed since the bake, such as the version of the compiler. Exit code 1 if a check fails.
    A bundle that was baked with --verify-later is compared with NumPy, and gets golden values; exit
    code 3 if they differ.

    With --key, --certificate or --identity, the signature is checked first. BUNDLE may then be the
    folder of a LoRA adapter: only its signature is checked.
    """
    if sum(map(bool, (key, certificate, identity))) > 1 or bool(identity) != bool(issuer):
        raise typer.BadParameter("give one of --key, --certificate, and --identity with --issuer.")
    signer = ExpectedSigner(
        keys=tuple(key or ()),
        roots=tuple(certificate or ()),
        identity=identity,
        issuer=issuer,
    )
    progress = TerminalProgress(open_console(stderr=True))
    console = open_console(quiet=as_json, soft_wrap=True)
    verdicts = verification.verify(bundle, console, progress, signer)
    if as_json:
        print(json.dumps({file: verdict.as_json() for file, verdict in verdicts.items()}))  # noqa: T201
    if not all(verdict.passed for verdict in verdicts.values()):
        raise typer.Exit(1)


@reproduce_.command(
    cls=flags.GroupedOptions, epilog="Example:\n\n\b\n    hearth reproduce gemma3-270m"
)
def _reproduce(
    bundle: _Bundle,
    *,
    weights: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Weights that the bundle was baked from. Default: the installed package that it "
            "names.",
        ),
    ] = None,
    adapter: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Adapter that was merged into the weights, if any."),
    ] = None,
    drafter: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Draft model that the bundle was baked with, if any."),
    ] = None,
) -> None:
    """Bake a bundle again and compare every byte.

    The new bundle is written to a temporary folder, with the options of the first bake. Prints
    what changed since then, such as the version of the compiler. Exit code 1 if a byte differs.
    """
    for change in changes(read_manifest(bundle)):
        print_line(f"changed since the bake: {change}")
    progress = TerminalProgress(open_console(stderr=True))
    differences = reproduce(bundle, weights, progress, adapter=adapter, drafter=drafter)
    for difference in differences:
        print_line(difference.message)
    if differences:
        raise typer.Exit(1)
    print_line(f"{bundle}: baked again, every byte is equal")
