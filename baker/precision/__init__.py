"""Choose how weights are stored: `--precision auto`."""
