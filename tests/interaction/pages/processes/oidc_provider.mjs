// An OpenID provider for the clients in the JSON on standard input.
// usage: node oidc_provider.mjs NODE_MODULES PORT
import { createRequire } from "node:module";
import { text } from "node:stream/consumers";
import { pathToFileURL } from "node:url";

const [, , modules, port] = process.argv;
const { Provider } = await import(pathToFileURL(createRequire(`${modules}/`).resolve("oidc-provider")));
const { clients } = JSON.parse(await text(process.stdin));

const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients,
  features: {
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: (_, audience) => ({ audience, scope: "seats", accessTokenFormat: "jwt" }),
    },
  },
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
});
provider.listen(Number(port), "127.0.0.1", () => console.log("ready"));
