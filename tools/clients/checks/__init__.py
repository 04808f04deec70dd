"""One script per client. Each runs in an environment with the packages of its client only.

A folder says what its clients are. The modules beside the folders are shared.
"""
