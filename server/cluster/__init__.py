"""Several machines: the server as an application of Ray Serve.

    client -> front (HTTP, text) -> router -> model replica (engine, runtime)

A front is the application of `hearth serve` whose engine is remote. It owns the client's stream, so
a replica can die: the request goes to another replica, which computes the same tokens again.
"""
