"""Tool calls: the forms in which models write them, how they are found, and their grammars."""
