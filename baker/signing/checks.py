"""The signature that the options of `hearth verify` require."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearthd.baker.signing.signers import verify_certificate, verify_identity
from hearthd.bundle import (
    SIGNATURE,
    read_public_key,
    require_signed_files,
    require_signed_manifest,
)

if TYPE_CHECKING:
    from pathlib import Path

    from hearthd.bundle import Manifest, PublicKey


@dataclass(frozen=True, kw_only=True)
class ExpectedSigner:
    """Who must have signed: the owner of a public key, of a certificate or of an account.

    keys      files with public keys: one of them must have signed
    roots     files with root certificates: the signer's certificate leads to one of them
    identity  keyless: the account, with its OpenID Connect `issuer`
    """

    keys: tuple[Path, ...] = ()
    roots: tuple[Path, ...] = ()
    identity: str | None = None
    issuer: str | None = None

    def __bool__(self) -> bool:
        """Whether any signer is expected."""
        return bool(self.keys or self.roots or self.identity)

    def require_bundle(self, bundle: Path, manifest: Manifest) -> str:
        """Check the signature of a bundle whose files are intact; returns what was checked.

        Raises BundleError.
        """
        require_signed_manifest(bundle, manifest, self._keys(bundle))
        return self._words()

    def require_folder(self, folder: Path) -> str:
        """As require_bundle, for the folder of an adapter: every file of it is read."""
        require_signed_files(folder, self._keys(folder))
        return self._words()

    def _keys(self, folder: Path) -> list[PublicKey] | None:
        """The public keys; None if the signer was found to be the expected one by other means."""
        if self.roots:
            verify_certificate(folder, self.roots)
        elif self.identity and self.issuer:
            verify_identity(folder, self.identity, self.issuer)
        else:
            return [read_public_key(path) for path in self.keys]
        return None

    def _words(self) -> str:
        if self.roots:
            return f"{SIGNATURE} is by a certificate of {', '.join(map(str, self.roots))}"
        return f"{SIGNATURE} is by {self.identity or ' or '.join(map(str, self.keys))}"
