"""Run published clients against a server: `python -m tools.clients.NAME http://127.0.0.1:8080`.

Each client needs its own packages, which Hearth does not install; the scripts name them.
"""
