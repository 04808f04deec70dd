"""A cluster of Ray on this machine that serves a fake runtime: its guarantees and its figures."""
