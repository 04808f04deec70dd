"""The sizes of the entry points of a model that reads images of any size."""

from __future__ import annotations

from hearthd.baker.pipeline.recipe import RecipeError
from hearthd.bundle import GridInput, ImageInput

# An image of 1024 x 1024 pixels, with the patches of the published models.
MAX_TOKENS = 1024
# The fewest of models whose images can have any number of rows.
_MIN_TOKENS = 64
_SMALLER = 4  # how many times fewer rows the next smaller entry point computes


def image_rows(settings: ImageInput | GridInput | None, max_tokens: int | None) -> tuple[int, ...]:
    """The rows of embeddings of each entry point, rising; none for images of one size.

    `max_tokens` as in the options. Raises RecipeError if it does not fit the model.
    """
    if not isinstance(settings, GridInput):
        if max_tokens is not None:
            reads = "no images" if settings is None else "images of one size"
            raise RecipeError(f"--image-max-tokens: the model reads {reads}; omit the option")
        return ()
    if settings.slices is not None:
        rows = settings.slices.rows
        if max_tokens not in (None, rows):
            raise RecipeError(
                f"--image-max-tokens: got {max_tokens}, but each part of an image has {rows} "
                "positions; omit the option"
            )
        return (rows,)
    smallest, largest = -(-settings.min_pixels // settings.step**2), settings.max_rows
    if settings.longest_edge is not None:
        smallest = min(_MIN_TOKENS, largest)
    if max_tokens is not None and not smallest <= max_tokens <= largest:
        raise RecipeError(
            f"--image-max-tokens: got {max_tokens}, expected {smallest} to {largest}, as the model "
            "was trained"
        )
    sizes = [min(max(MAX_TOKENS, smallest), largest) if max_tokens is None else max_tokens]
    while not settings.fills and sizes[-1] // _SMALLER >= smallest:
        sizes.append(sizes[-1] // _SMALLER)
    return tuple(reversed(sizes))
