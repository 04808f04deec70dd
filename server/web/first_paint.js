// Before anything else of the page runs. This is a classic script because modules run later.

// The server's policy allows requests to every address. Allow only this server, and the MCP servers that
// data/tool_servers.js has stored.
const policy = document.createElement("meta");
policy.httpEquiv = "Content-Security-Policy";
policy.content = `connect-src 'self' ${toolServers().join(" ")}`;
document.head.append(policy);

// Set dark or light mode before the first paint. view/theme.js stores the choice.
document.documentElement.dataset.theme = localStorage.getItem("hearth.theme") ?? "";

function toolServers() {
  try {
    return JSON.parse(localStorage.getItem("hearth.mcp") ?? "[]").map(({ url }) => new URL(url).origin);
  } catch {
    return [];
  }
}
