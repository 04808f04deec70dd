"""One script per client. Each runs in an environment with the packages of its client only."""
