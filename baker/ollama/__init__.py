"""Models as Ollama describes them: in its folder of models, and in Modelfiles."""
