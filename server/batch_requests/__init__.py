"""Answers the requests of batches, whether they are in files or stored by a server."""
