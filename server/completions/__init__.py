"""From a request for text to a request to the engine, and from its tokens to an answer."""
