"""The command line. It imports the baker and the server when a command needs them."""
