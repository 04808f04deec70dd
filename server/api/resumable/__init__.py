"""Streams that go on without their client: their bytes, the middleware and the routes."""
