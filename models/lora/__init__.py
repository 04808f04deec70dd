"""LoRA in a model's graphs: the terms that are trained, and the places that a server fills."""
