// Shows the description. A token lives in the page's memory alone: nothing is asked of a validator elsewhere, and
// nothing is stored.
SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#docs",
  deepLinking: true,
  persistAuthorization: false,
  validatorUrl: null,
  defaultModelsExpandDepth: 0,
});
