"""ASGI middleware around every route: access log, API keys and body limits."""
