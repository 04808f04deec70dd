"""Marks in a grammar, at the beginning of values whose objects have no key twice.

A mark is an optional token, which no vocabulary has and no answer contains. Where a grammar allows
it next, such a value may begin: see text/grammars/unique_keys.py.
"""

JSON_VALUE = "<json-value>"
FUNCTION_GEMMA_VALUE = "<function-gemma-value>"
GEMMA_4_VALUE = "<gemma-4-value>"
# Around the strings of these notations.
FUNCTION_GEMMA_DELIMITER = "<escape>"
GEMMA_4_DELIMITER = '<|"|>'


def marked_schema(schema: str) -> str:
    """A JSON Schema as an atom of a Lark grammar, wherever `%json` may stand."""
    # The line break ends the rule.
    return f"%lark {{ start: {JSON_VALUE}? %json {schema}\n}}"
