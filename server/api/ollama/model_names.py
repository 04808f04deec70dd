"""The names of models in Ollama's form: `model:tag`, where no tag is the tag `latest`.

A model of this server has the tag `latest`, and a LoRA adapter of it the adapter's name as its tag.
A model that was pulled as hf.co/ORG/REPO:QUANT has this name with - in place of / and :.
"""

from typing import Annotated

from pydantic import AfterValidator

from hearthd.bundle.kept_bundles import readable_name
from hearthd.server.api.fields import Text
from hearthd.server.services.model_pool import LATEST

_TAG = f":{LATEST}"


def bare(name: str) -> str:
    """The name of a model without the tag `latest`."""
    name = name.removesuffix(_TAG)
    return readable_name(name) if "/" in name else name


def tagged(name: str) -> str:
    """The name of a model or adapter with its tag."""
    return name if ":" in name else f"{name}{_TAG}"


NAME = (
    "Name of a model in /api/tags. The tag `:latest` can be left out. A server with one model "
    "answers to any name."
)
OllamaName = Annotated[Text, AfterValidator(bare)]
