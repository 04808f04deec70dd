"""An MCP server on the standard streams with one tool, get_weather, for clients that start one."""

from __future__ import annotations

import json
import sys
from typing import Any

from tools.clients.checks.checking import TOOL, get_weather
from tools.clients.environments import ROOT

NAME = "weather"  # in the configurations of the clients
# Starts the server. Clients do not pass their variables on.
COMMAND = ("env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "tools.clients.checks.mcp_server")


def _result(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": NAME, "version": "1"},
            }
        case "tools/list":
            schema = TOOL["parameters"]
            tool = {"name": TOOL["name"], "description": TOOL["description"], "inputSchema": schema}
            return {"tools": [tool]}
        case "tools/call":
            return {"content": [{"type": "text", "text": get_weather(**params["arguments"])}]}
    return {}


def main() -> None:
    """Answer the requests, one a line, until the client closes its end."""
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:  # and no notification
            result = _result(request["method"], request.get("params", {}))
            answer = {"jsonrpc": "2.0", "id": request["id"], "result": result}
            print(json.dumps(answer), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
