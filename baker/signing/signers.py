"""Sign folders and verify signatures with the package model-signing, the reference of the format.

Signatures by a public key are also checked without it: see bundle/signature.py.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearthd.baker.atomic_file import write_atomically
from hearthd.baker.temporary_folder import temporary_folder
from hearthd.bundle import (
    MANIFEST,
    SIGNATURE,
    BadSignature,
    BundleError,
    LanguageManifest,
    NotABundle,
    read_manifest,
    require_signed_files,
    signed_files,
    verify_files,
)
from hearthd.bundle.lora.adapter_settings import CONFIG

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from model_signing import hashing
    from model_signing.signing import Config as SigningConfig
    from model_signing.verifying import Config as VerifyingConfig

# Messages of model-signing and PyKCS11 about PKCS #11, and what they mean.
_MEANINGS = {
    "CKR_PIN_INCORRECT": "wrong PIN: correct pin-value, or the file of pin-source, which must "
    "not end with a newline",
    "CKR_PIN_LOCKED": "the PIN is locked after too many wrong ones: reset it",
    "Could not find any object": "no such key in the token: the URI must name a private and a "
    "public key, and have the PIN in pin-source or pin-value",
    "module-name attribute is not set": "no PKCS #11 module: add ?module-path=/path/of/module.so "
    "to the URI",
    "cannot convert 'NoneType' object to bytes": "wrong kind of key in the token: expected P-256, "
    "P-384 or P-521",
}


class SigningError(BundleError):
    """A folder cannot be signed, or its signature cannot be checked here."""


@dataclass(frozen=True, kw_only=True)
class Signer:
    """Who signs: the owner of a key in a file or a PKCS #11 token, or of an account (keyless).

    key          file with a private key of an elliptic curve, as PEM
    pkcs11       URI of a private key in a token, as RFC 7512 defines it
    certificate  file with the certificate of `key`, as PEM, if signatures are to contain it
    chain        files with the certificates between it and the root
    token        keyless: OpenID Connect token; None: of the environment, or by a web browser
    """

    key: Path | None = None
    pkcs11: str | None = None
    certificate: Path | None = None
    chain: tuple[Path, ...] = ()
    token: str | None = None

    def configure(self, config: SigningConfig) -> None:
        """Have `config` sign as this signer; raises whatever the package does."""
        if self.key:
            _require_signing_key(self.key)
        for path in (*filter(None, [self.certificate]), *self.chain):
            _require_certificate(path)
        if self.key and self.certificate:
            config.use_certificate_signer(
                private_key=self.key,
                signing_certificate=self.certificate,
                certificate_chain=self.chain or (self.certificate,),  # 1.1.1 fails on an empty one
            )
        elif self.key:
            config.use_elliptic_key_signer(private_key=self.key)
        elif self.pkcs11:
            config.use_pkcs11_signer(pkcs11_uri=self.pkcs11)
        else:
            config.use_sigstore_signer(identity_token=self.token, use_ambient_credentials=True)


def _require_signing_key(path: Path) -> None:
    """Raise ValueError, in words, for a file without a private key that signs; or OSError."""
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    pem = path.read_bytes()
    try:
        key = load_pem_private_key(pem, None)
    except TypeError as error:  # a password is missing
        raise ValueError(f"{path} has a password: `openssl pkey -in KEY` removes it") from error
    except ValueError as error:
        raise ValueError(
            f"{path} is not a private key in PEM: "
            "`openssl ecparam -name prime256v1 -genkey -noout` makes one"
        ) from error
    if not isinstance(key, EllipticCurvePrivateKey):
        raise ValueError(f"{path} has another kind of key, expected P-256, P-384 or P-521")


def _require_certificate(path: Path) -> None:
    from cryptography.x509 import load_pem_x509_certificates

    pem = path.read_bytes()
    try:
        load_pem_x509_certificates(pem)
    except ValueError as error:
        raise ValueError(f"{path} is not a certificate in PEM") from error


def sign(folder: Path, signer: Signer) -> None:
    """Write the signature of a bundle or an adapter into its folder; raises BundleError.

    A bundle must be intact, and its folder must have no other files.
    """
    _require_signable(folder)
    with _library(SigningError, f"{folder}: cannot be signed"):
        from model_signing import signing

        config = signing.Config().set_hashing_config(_hashing())
        signer.configure(config)
        with temporary_folder("hearth-") as folder_:
            written = folder_ / SIGNATURE
            config.sign(folder.resolve(), written)
            write_atomically(folder, {SIGNATURE: written.read_bytes()})
    signed_files(folder, None)


def verify_certificate(folder: Path, roots: tuple[Path, ...]) -> None:
    """Check the signature of a folder by certificates that lead to `roots`; raises BadSignature."""
    _verify(folder, lambda config: config.use_certificate_verifier(certificate_chain=roots))


def verify_identity(folder: Path, identity: str, issuer: str) -> None:
    """Check the keyless signature of a folder; raises BadSignature. Needs a network."""
    _verify(
        folder,
        lambda config: config.use_sigstore_verifier(identity=identity, oidc_issuer=issuer),
    )


def _verify(folder: Path, configure: Callable[[VerifyingConfig], VerifyingConfig]) -> None:
    require_signed_files(folder, None)  # it names the file that was changed in words
    with _library(SigningError, f"{folder / SIGNATURE}: cannot be verified"):
        from model_signing import verifying

        config = configure(verifying.Config()).set_hashing_config(_hashing())
    with _library(BadSignature, f"{folder / SIGNATURE}: wrong signature"):
        config.verify(folder.resolve(), folder / SIGNATURE)


def _hashing() -> hashing.Config:
    from model_signing import hashing

    return hashing.Config().set_ignored_paths(paths=[SIGNATURE], ignore_git_paths=False)


def _require_signable(folder: Path) -> None:
    if not (folder / MANIFEST).is_file():
        if (folder / CONFIG).is_file():
            return
        raise NotABundle(
            f"{folder}: neither a bundle nor an adapter: it has no {MANIFEST} and no {CONFIG}"
        )
    manifest = read_manifest(folder)
    if isinstance(manifest, LanguageManifest) and not manifest.golden:
        raise SigningError(f"{folder}: not compared with NumPy yet; run hearth verify before")
    verify_files(folder, manifest)
    names = {MANIFEST, SIGNATURE, *(record.name for record in manifest.files)}
    if added := {path.name for path in folder.iterdir()} - names:
        raise SigningError(f"{folder / min(added)}: not a file of the bundle; remove it")


@contextmanager
def _library(error_type: type[BundleError], problem: str) -> Iterator[None]:
    """Report any exception of model-signing, which documents only some, as one sentence."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise SigningError(
            f"the package {error.name!r} is not installed: install it, as in "
            "pip install 'hearthd[sign]'"
        ) from error
    except Exception as error:
        raise error_type(f"{problem}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """What an exception of model-signing says, or of its cause if it says nothing."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename} cannot be read: {error.strerror}"
    words = str(error) or str(error.__cause__ or type(error).__name__)
    for message, meaning in _MEANINGS.items():
        if message in words:
            return meaning
    return " ".join(words.split())
