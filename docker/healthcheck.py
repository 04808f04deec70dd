"""Exit with 0 if the server in this container accepts requests, else with 1 and a reason.

The port and TLS are read from the environment variables of the image, not from `--config` or flags.
This uses the standard library only; the image has no curl.
"""

import http.client
import os
import ssl
import sys

TIMEOUT = 4.0  # seconds; the Dockerfile allows 5 for the whole check


def main() -> int:
    """Request /health/ready on the loopback address, without a proxy."""
    port = int(os.environ["HEARTH_PORT"])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
    if os.environ.get("HEARTH_TLS_CERT"):
        # The certificate is for the host name that clients use, not for the loopback address.
        context = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection(
            "127.0.0.1", port, timeout=TIMEOUT, context=context
        )
    try:
        connection.request("GET", "/health/ready")
        answer = connection.getresponse()
        print(answer.status, answer.read().decode())  # noqa: T201
    except (OSError, http.client.HTTPException) as error:
        print(f"no response on port {port}: {error}")  # noqa: T201
        return 1
    return int(answer.status != http.client.OK)


if __name__ == "__main__":
    sys.exit(main())
