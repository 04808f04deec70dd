"""The bundle: the contract between the baker, which writes it, and the server, which reads it.

A bundle is a directory::

    manifest.json    what is in the bundle, and everything needed to run it
    model.vmfb       the compiled program
    params.irpa      the weights

and what its kind of program needs besides: language.py, arrays.py. common.py has what the kinds
share, reading.py tells them apart; files.py has digests, provenance.py where a bundle came from.

This package knows the standard library only: no arrays, no runtime, no compiler. The names that a
file has in its `__all__` are the names of this package.
"""

from models.bundle.array_manifest import *
from models.bundle.bundle_errors import *
from models.bundle.file_records import *
from models.bundle.language_manifest import *
from models.bundle.manifest import *
from models.bundle.memory_sum import *
from models.bundle.provenance import *
from models.bundle.read_manifest import *
