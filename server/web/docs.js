// The description of the API at /docs, by Swagger UI. It is in this server's own files and asks no
// other server: the validator of Swagger UI is a service of its makers.

globalThis.SwaggerUIBundle({
  url: new URL("openapi.json", document.baseURI).href,
  dom_id: "#api",
  deepLinking: true,
  validatorUrl: null,
});
