// Before anything else of the page runs. This is a classic script because modules run later.

const root = document.documentElement;

// The server's policy allows requests to every address. Allow only this server, and the MCP servers that
// data/tool_servers.js has stored, with the authorization servers that the user signs in to.
const policy = document.createElement("meta");
policy.httpEquiv = "Content-Security-Policy";
policy.content = `connect-src 'self' ${toolServers().join(" ")}`;
document.head.append(policy);

// Set dark or light mode before the first paint. view/theme.js stores the choice.
root.dataset.theme = localStorage.getItem("hearth.theme") ?? "";

// Set the language: the user's choice, or the first of the browser's languages that the page has. The texts
// are in strings/.
root.lang = [localStorage.getItem("hearth.language"), ...navigator.languages].map(known).find(Boolean) ?? "en";

// The language of the page for a BCP 47 tag: the same language in the same script, so zh-CN is zh-Hans, and
// zh-TW is not.
function known(tag) {
  return root.dataset.languages.split(" ").find((language) => written(language) === written(tag));
}

function written(tag) {
  try {
    const { language, script } = new Intl.Locale(tag).maximize();
    return `${language}-${script}`;
  } catch {
    return tag;
  }
}

function toolServers() {
  try {
    const servers = JSON.parse(localStorage.getItem("hearth.mcp") ?? "[]");
    return servers.flatMap(({ url }) => [url, ...issuers(url)]).map((url) => new URL(url).origin);
  } catch {
    return [];
  }
}

function issuers(url) {
  return JSON.parse(localStorage.getItem(`hearth.mcp ${url}`))?.origins ?? [];
}
