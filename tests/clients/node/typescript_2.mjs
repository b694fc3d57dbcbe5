// The TypeScript SDK's client, version 2.
import { drive, load } from "./driving.mjs";

const { Client, StreamableHTTPClientTransport } = load("@modelcontextprotocol/client");
const { StdioClientTransport } = load("@modelcontextprotocol/client/stdio");

await drive(async ({ url, command, era, asks }, answer) => {
  const client = new Client(
    { name: "typescript-2", version: "1.0" },
    {
      capabilities: asks ? { elicitation: { form: {}, url: {} } } : {},
      versionNegotiation: { mode: era === "live" ? "legacy" : "auto" },
    },
  );
  if (asks) client.setRequestHandler("elicitation/create", (request) => answer(request.params));
  const [program, ...args] = command ?? [];
  await client.connect(
    url ? new StreamableHTTPClientTransport(new URL(url)) : new StdioClientTransport({ command: program, args, stderr: "ignore" }),
  );
  return {
    call: (name, args) => client.callTool({ name, arguments: args }),
    close: () => client.close(),
  };
});
