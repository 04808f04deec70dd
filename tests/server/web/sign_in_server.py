"""An MCP server that requires a token, and its authorization server at another address.

The `mcp` package has both: it checks metadata, registration, PKCE and the binding of tokens to a
resource.
"""

from __future__ import annotations

import contextlib
import socket
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    ProviderTokenVerifier,
    RefreshToken,
)
from mcp.server.auth.routes import create_auth_routes
from mcp.server.auth.settings import (
    AuthSettings,
    ClientRegistrationOptions,
    RevocationOptions,
)
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import HTMLResponse, RedirectResponse
from starlette.routing import Route
from typing_extensions import override

from tests.server.web.tool_server import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.requests import Request

SCOPE = "add"
HOUR = 3600


@dataclass
class Issuer(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """The state of the authorization server. `url` is the MCP server's.

    `registers` says whether it has dynamic client registration; `grants` counts its tokens.
    """

    url: str
    issuer: str
    clients: dict[str, OAuthClientInformationFull] = field(default_factory=dict)
    codes: dict[str, AuthorizationCode] = field(default_factory=dict)
    access: dict[str, AccessToken] = field(default_factory=dict)
    refresh: dict[str, RefreshToken] = field(default_factory=dict)
    registers: bool = True
    grants: int = 0

    @override
    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        """The client of an id."""
        return self.clients.get(client_id)

    @override
    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        """Register a client."""
        assert client_info.client_id is not None
        self.clients[client_info.client_id] = client_info

    @override
    async def authorize(
        self, client: OAuthClientInformationFull, params: AuthorizationParams
    ) -> str:
        """The page that asks the user."""
        code = AuthorizationCode(
            code=f"code-{len(self.codes)}",
            scopes=params.scopes or [],
            expires_at=time.time() + HOUR,
            client_id=client.client_id or "",
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self.codes[code.code] = code
        query = {"code": code.code, "state": params.state or "", "to": str(params.redirect_uri)}
        return f"{self.issuer}/consent?{urlencode(query)}"

    @override
    async def load_authorization_code(
        self, _client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        """A code that was not used."""
        return self.codes.get(authorization_code)

    @override
    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        """The tokens for a code."""
        del self.codes[authorization_code.code]
        return self._tokens(client, authorization_code.scopes, authorization_code.resource)

    @override
    async def load_refresh_token(
        self, _client: OAuthClientInformationFull, refresh_token: str
    ) -> RefreshToken | None:
        """A refresh token that was not used."""
        return self.refresh.get(refresh_token)

    @override
    async def exchange_refresh_token(
        self,
        client: OAuthClientInformationFull,
        refresh_token: RefreshToken,
        scopes: list[str],
    ) -> OAuthToken:
        """The next tokens."""
        del self.refresh[refresh_token.token]
        return self._tokens(client, scopes, refresh_token.resource)

    @override
    async def load_access_token(self, token: str) -> AccessToken | None:
        """A token that was not revoked."""
        return self.access.get(token)

    @override
    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        """Forget a token."""
        self.access.pop(token.token, None)
        self.refresh.pop(token.token, None)

    def _tokens(
        self, client: OAuthClientInformationFull, scopes: list[str], resource: str | None
    ) -> OAuthToken:
        self.grants += 1
        values: dict[str, Any] = {
            "client_id": client.client_id,
            "scopes": scopes,
            "resource": resource,
        }
        access = AccessToken(token=f"access-{self.grants}", **values)
        refresh = RefreshToken(token=f"refresh-{self.grants}", **values)
        self.access[access.token] = access
        self.refresh[refresh.token] = refresh
        return OAuthToken(
            access_token=access.token,
            expires_in=HOUR,
            refresh_token=refresh.token,
            scope=" ".join(scopes),
        )


@contextlib.contextmanager
def sign_in_server(*, registers: bool = True) -> Iterator[Issuer]:
    """The MCP server at `Issuer.url`, and its authorization server, as long as the block."""
    with (
        socket.create_server(("127.0.0.1", 0)) as of_tools,
        socket.create_server(("127.0.0.1", 0)) as of_issuer,
    ):
        issuer = Issuer(f"{_address(of_tools)}/mcp", _address(of_issuer), registers=registers)
        with serving(_tools(issuer), of_tools), serving(_authorization(issuer), of_issuer):
            yield issuer


def _address(bound: socket.socket) -> str:
    return f"http://127.0.0.1:{bound.getsockname()[1]}"


def _tools(issuer: Issuer) -> CORSMiddleware:
    settings = AuthSettings(
        issuer_url=AnyHttpUrl(issuer.issuer),
        resource_server_url=AnyHttpUrl(issuer.url),
        required_scopes=[SCOPE],
        validate_token_resource=True,
    )
    tools: MCPServer[Any] = MCPServer(
        "signed", token_verifier=ProviderTokenVerifier(issuer), auth=settings
    )

    @tools.tool()
    def add(a: int, b: int) -> str:
        """Add two numbers."""
        return f"{a} + {b} = {a + b}"

    return CORSMiddleware(
        tools.streamable_http_app(),
        allow_origin_regex="http://127.0.0.1:.*",
        allow_methods=["*"],
        allow_headers=["*"],
        expose_headers=["Mcp-Session-Id"],
    )


def _authorization(issuer: Issuer) -> Starlette:
    registration = ClientRegistrationOptions(enabled=issuer.registers, valid_scopes=[SCOPE])
    routes = create_auth_routes(
        issuer,
        AnyHttpUrl(issuer.issuer),
        client_registration_options=registration,
        revocation_options=RevocationOptions(enabled=True),
    )

    async def consent(request: Request) -> HTMLResponse:
        back = {"code": request.query_params["code"], "state": request.query_params["state"]}
        refused = {"error": "access_denied", "state": back["state"]}
        to = request.query_params["to"]
        return HTMLResponse(
            f'<a id="allow" href="{to}?{urlencode(back)}">Allow</a>'
            f'<a id="refuse" href="{to}?{urlencode(refused)}">Refuse</a>'
        )

    async def icon(_request: Request) -> RedirectResponse:
        return RedirectResponse("data:,")

    return Starlette(routes=[*routes, Route("/consent", consent), Route("/favicon.ico", icon)])
