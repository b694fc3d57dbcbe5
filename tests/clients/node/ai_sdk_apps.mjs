// A host on the AI SDK's helpers for MCP Apps. Its model sees tools and results as `tools()` and the helpers give them.
// The job is JSON on standard input: `{url, headers, live, calls}`. Each line of standard output is JSON: first
// `{host, plain, document}`, then the end of each call. The host's part of a call is a line on standard input, see below.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import { load } from "./driving.mjs";

// The package has ES modules only.
const root = load.resolve("@ai-sdk/mcp/package.json");
const sdk = await import(new URL("dist/index.js", pathToFileURL(root)));

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const read = async () => JSON.parse((await lines.next()).value);
const write = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);

const { url, headers, live } = await read();
const client = await sdk.createMCPClient({
  transport: { type: "http", url, headers },
  capabilities: sdk.mcpAppClientCapabilities,
  protocolVersionDiscovery: !live,
});
const { modelVisible, appVisible } = sdk.splitMCPAppTools(await client.listTools());
const tools = client.toolsFromDefinitions(modelVisible);
const plain = await client.tools();
const options = { toolCallId: "call", messages: [] };

/** Return what the model gets of a result. */
const toModel = async (tool, input, output) => tool.toModelOutput({ toolCallId: "call", input, output });

/** What the host and the model do. A host's own result has `_meta`; the model gets `model` alone. */
const ACTIONS = {
  async about() {
    return {
      model: Object.keys(tools),
      app: appVisible.tools.map(({ name }) => name),
      plain: Object.keys(plain),
      apps: Object.fromEntries(Object.entries(tools).map(([name, tool]) => [name, tool.metadata?.app ?? null])),
    };
  },
  async document({ uri }) {
    const { html, meta } = await sdk.readMCPAppResource({ client, uri });
    return { html, meta };
  },
  async call({ name, args }) {
    const result = await tools[name].execute(args, options);
    return { result, model: await toModel(tools[name], args, result) };
  },
  /** A tool that the view calls: the host checks that it is for apps. */
  async app({ name, args }) {
    if (!appVisible.tools.some((tool) => tool.name === name)) throw new Error("not for apps");
    return { result: await client.callTool({ name, arguments: args }) };
  },
  /** A tool of `tools()`, as a host without the helpers gives it to its model. */
  async plain({ name, args }) {
    const result = await plain[name].execute(args, options);
    return { model: await toModel(plain[name], args, result), isError: result.isError ?? false };
  },
};

for (;;) {
  const action = await read().catch(() => null);
  if (action === null) break;
  try {
    write(await ACTIONS[action.do](action));
  } catch (error) {
    write({ error: error.message });
  }
}
await client.close();
process.exit(0);
