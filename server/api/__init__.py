"""HTTP: routes, bodies, errors, server-sent events."""
