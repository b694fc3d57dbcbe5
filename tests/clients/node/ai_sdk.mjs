// The client of the AI SDK, and its tools as a model would call them.
import { pathToFileURL } from "node:url";
import { drive, load } from "./driving.mjs";

// These packages have ES modules only.
const root = load.resolve("@ai-sdk/mcp/package.json");
const { createMCPClient, ElicitationRequestSchema } = await import(new URL("dist/index.js", pathToFileURL(root)));
const { Experimental_StdioMCPTransport } = await import(new URL("dist/mcp-stdio/index.js", pathToFileURL(root)));

await drive(async ({ url, command, era, asks }, answer) => {
  const [program, ...args] = command ?? [];
  const client = await createMCPClient({
    transport: url ? { type: "http", url } : new Experimental_StdioMCPTransport({ command: program, args, stderr: "ignore" }),
    capabilities: asks ? { elicitation: {} } : {},
    protocolVersionDiscovery: era !== "live",
  });
  if (asks) client.onElicitationRequest(ElicitationRequestSchema, (request) => answer(request.params));
  const tools = await client.tools();
  return {
    call: (name, args) => tools[name].execute(args, { toolCallId: name, messages: [] }),
    close: () => client.close(),
  };
});
