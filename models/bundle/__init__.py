"""The bundle: the contract between the baker, which writes it, and the server, which reads it.

A bundle is a directory::

    manifest.json    what is in the bundle, and everything needed to run it
    model.vmfb       the compiled program
    params.irpa      the weights

and what its kind of program needs besides: language.py, arrays.py. common.py has what the kinds
share, reading.py tells them apart.

This package knows the standard library only: no arrays, no runtime, no compiler.
"""

from models.bundle.arrays import (
    GOLDEN,
    ArraysManifest,
    ArraySpec,
    FunctionSpec,
    InputSpec,
    OutputSpec,
)
from models.bundle.common import (
    FORMAT,
    MANIFEST,
    PARAMETER_SCOPE,
    PARAMETERS,
    VMFB,
    BundleError,
    Compiler,
    Corrupt,
    FileRecord,
    Manifest,
    NotABundle,
    Target,
    WrongFormat,
    WrongKind,
    digest,
    record_file,
    verify_files,
    write_manifest,
)
from models.bundle.language import (
    CHAT_TEMPLATE,
    PREFIX,
    TOKENIZER,
    CacheSpec,
    EntryPoint,
    Golden,
    GoldenStep,
    LanguageManifest,
    SpecialTokens,
)
from models.bundle.reading import AnyManifest, parse_manifest, read_manifest, read_manifest_of

__all__ = [
    "CHAT_TEMPLATE",
    "FORMAT",
    "GOLDEN",
    "MANIFEST",
    "PARAMETERS",
    "PARAMETER_SCOPE",
    "PREFIX",
    "TOKENIZER",
    "VMFB",
    "AnyManifest",
    "ArraySpec",
    "ArraysManifest",
    "BundleError",
    "CacheSpec",
    "Compiler",
    "Corrupt",
    "EntryPoint",
    "FileRecord",
    "FunctionSpec",
    "Golden",
    "GoldenStep",
    "InputSpec",
    "LanguageManifest",
    "Manifest",
    "NotABundle",
    "OutputSpec",
    "SpecialTokens",
    "Target",
    "WrongFormat",
    "WrongKind",
    "digest",
    "parse_manifest",
    "read_manifest",
    "read_manifest_of",
    "record_file",
    "verify_files",
    "write_manifest",
]
