"""The server as a process: signals, connections, memory and startup."""
