"""The process around the application: its socket, signals, connections, memory and imports."""
