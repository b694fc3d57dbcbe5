// Calls a tool with the TypeScript SDK's client: node typescript_client.mjs NODE_MODULES URL MODE TOOL ARGUMENTS ANSWERS.
// MODE is `legacy` or a revision. Each question is answered with the next of ANSWERS; prints what was asked, and the result.
import { createRequire } from "node:module";

const [modules, url, mode, name, called, answers] = process.argv.slice(2);
const { Client, StreamableHTTPClientTransport } = createRequire(`${modules}/`)("@modelcontextprotocol/client");

const asked = [];
const script = JSON.parse(answers);
const client = new Client(
  { name: "typescript", version: "1.0" },
  {
    capabilities: { elicitation: { form: {} } },
    versionNegotiation: { mode: mode === "legacy" ? mode : { pin: mode } },
  },
);
client.setRequestHandler("elicitation/create", (request) => {
  asked.push(request.params.message);
  return { action: "accept", content: script.shift() };
});

await client.connect(new StreamableHTTPClientTransport(new URL(url)));
try {
  const { content, structuredContent, isError } = await client.callTool({ name, arguments: JSON.parse(called) });
  const text = content.map((block) => block.text);
  process.stdout.write(JSON.stringify({ asked, text, structured: structuredContent, failed: isError === true }));
} finally {
  await client.close();
}
