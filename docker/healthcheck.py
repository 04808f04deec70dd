"""Exit with 0 if the server in this container accepts requests, else with 1 and the reason.

It knows the port and TLS from the environment, as the image sets it, not from `--config` or flags.
Standard library only: the image has no curl.
"""

import http.client
import os
import ssl
import sys

TIMEOUT = 4.0  # seconds; the Dockerfile allows 5 for all


def main() -> int:
    """Ask /health/ready on the loopback; no proxy stands between."""
    port = int(os.environ["HEARTH_PORT"])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
    if os.environ.get("HEARTH_TLS_CERT"):
        # The certificate names the host that clients know, and this is a call to ourselves.
        context = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection(
            "127.0.0.1", port, timeout=TIMEOUT, context=context
        )
    try:
        connection.request("GET", "/health/ready")
        answer = connection.getresponse()
        print(answer.status, answer.read().decode())  # noqa: T201
    except (OSError, http.client.HTTPException) as error:
        print(f"no answer on port {port}: {error}")  # noqa: T201
        return 1
    return int(answer.status != http.client.OK)


if __name__ == "__main__":
    sys.exit(main())
