"""`hearth sign`."""

from pathlib import Path
from typing import Annotated

import typer

from hearthd import flags
from hearthd.baker.signing.signers import Signer, sign
from hearthd.bundle import SIGNATURE, BundleError, bundle_home
from hearthd.text.control_characters import print_line

# Exceptions that end the command, and its exit code: see hearthd/cli.py.
ERRORS: dict[type[Exception], int] = {BundleError: 1}

_Folder = Annotated[
    Path,
    typer.Argument(
        metavar="FOLDER",
        parser=bundle_home.named_bundle,
        autocompletion=bundle_home.completed_names,
        help="Folder of a bundle or of a LoRA adapter, or the name of a bundle in "
        f"${bundle_home.ENVIRONMENT}.",
    ),
]
_Key = Annotated[
    Path | None,
    typer.Option(
        metavar="KEY", help="File with a private key: PEM, P-256, P-384 or P-521, no password."
    ),
]
_Pkcs11 = Annotated[
    str | None,
    typer.Option(
        metavar="URI",
        help="Private key in a PKCS #11 token, such as an HSM: pkcs11:token=...;object=... "
        "Needs model-signing[pkcs11].",
    ),
]
_Certificate = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Certificate of --key, PEM. The signature contains it."),
]
_Chain = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE",
        help="Certificates between --certificate and the root, PEM. Repeatable.",
    ),
]
_Keyless = Annotated[
    bool,
    typer.Option(
        "--keyless", help="Sign with an account, in Sigstore's public log. Needs a network."
    ),
]
_Token = Annotated[
    str | None,
    typer.Option(
        metavar="TOKEN",
        envvar="SIGSTORE_IDENTITY_TOKEN",
        help="OpenID Connect token of --keyless. Default: the CI job's, or a web browser.",
    ),
]

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(cls=flags.GroupedOptions)
def _sign(
    folder: _Folder,
    *,
    key: _Key = None,
    pkcs11: _Pkcs11 = None,
    certificate: _Certificate = None,
    chain: _Chain = None,
    keyless: _Keyless = False,
    identity_token: _Token = None,
) -> None:
    """Sign a bundle or a LoRA adapter.

    Writes model.sig, in the format of OpenSSF Model Signing, into FOLDER. It covers every file of
    the folder. Needs hearthd[sign]. `hearth verify` and `hearth serve --require-signature` check it
    with the public key:

    \b
        openssl ecparam -name prime256v1 -genkey -noout -out private.pem
        openssl pkey -in private.pem -pubout -out public.pem
        hearth sign gemma3-270m --key private.pem
        hearth verify gemma3-270m --key public.pem
    """
    if sum(map(bool, (key, pkcs11, keyless))) != 1:
        raise typer.BadParameter("give one of --key, --pkcs11 and --keyless.")
    if (certificate and not key) or (chain and not certificate):
        raise typer.BadParameter("--chain needs --certificate, which needs --key.")
    signer = Signer(
        key=key,
        pkcs11=pkcs11,
        certificate=certificate,
        chain=tuple(chain or ()),
        token=identity_token,
    )
    sign(folder, signer)
    print_line(f"{folder / SIGNATURE}: written")
