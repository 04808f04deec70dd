"""Documents of the ops and functions of the DSL: `python -m hearthd.models.dsl.registry`.

signature  the dtypes that an op takes, gives and has as attributes, by probing its shape rule
facts      all that a document says of an op, found out from its declaration
source     the public functions and classes of a file, read from its text
documents  operators.json and docs/operators.md
"""
