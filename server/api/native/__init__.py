"""Routes without a client library: /generate, /tokenize, /v1/rerank and /run."""
