"""The bundle: the contract between the baker, which writes it, and the server, which reads it.

A bundle is a directory::

    manifest.json    what is in the bundle, and everything needed to run it
    model.vmfb       the compiled program
    params.irpa      the weights

perhaps model.TARGET.vmfb, the program compiled for other machines, and the files that only a
language model or only array functions need: manifests/language_manifest.py and array_manifest.py
describe them. manifests/manifest.py has the fields that both share, read_manifest.py reads
either, file_records.py has digests, provenance.py the origin of a bundle, and signature.py checks
who signed it.

This package imports the standard library only, and `cryptography` when a signature is checked: no
arrays, no runtime, no compiler. It exports the names in the `__all__` of its modules.
"""

from hearthd.bundle.bundle_errors import *
from hearthd.bundle.file_records import *
from hearthd.bundle.manifests.adapter_places import *
from hearthd.bundle.manifests.array_manifest import *
from hearthd.bundle.manifests.cache_specs import *
from hearthd.bundle.manifests.encoder_manifest import *
from hearthd.bundle.manifests.entry_point import *
from hearthd.bundle.manifests.golden import *
from hearthd.bundle.manifests.image_input import *
from hearthd.bundle.manifests.image_parts import *
from hearthd.bundle.manifests.language_manifest import *
from hearthd.bundle.manifests.language_memory import *
from hearthd.bundle.manifests.manifest import *
from hearthd.bundle.manifests.preset import *
from hearthd.bundle.manifests.read_manifest import *
from hearthd.bundle.manifests.sound_input import *
from hearthd.bundle.manifests.speech_manifest import *
from hearthd.bundle.memory_sum import *
from hearthd.bundle.provenance import *
from hearthd.bundle.signature import *
