// The TypeScript SDK's client, version 1.
import { drive, load } from "./driving.mjs";

const { Client } = load("@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = load("@modelcontextprotocol/sdk/client/streamableHttp.js");
const { StdioClientTransport } = load("@modelcontextprotocol/sdk/client/stdio.js");
const { ElicitRequestSchema } = load("@modelcontextprotocol/sdk/types.js");

await drive(async ({ url, command, asks }, answer) => {
  const capabilities = asks ? { elicitation: { form: {}, url: {} } } : {};
  const client = new Client({ name: "typescript-1", version: "1.0" }, { capabilities });
  if (asks) client.setRequestHandler(ElicitRequestSchema, (request) => answer(request.params));
  const [program, ...args] = command ?? [];
  await client.connect(
    url ? new StreamableHTTPClientTransport(new URL(url)) : new StdioClientTransport({ command: program, args, stderr: "ignore" }),
  );
  return {
    call: (name, args) => client.callTool({ name, arguments: args }),
    close: () => client.close(),
  };
});
