// Runs the calls of a job with a client. The job is JSON on standard input, the outcomes are JSON on standard output.
// usage: node CLIENT.mjs NODE_MODULES, where CLIENT.mjs imports this and calls `drive(connect)`.
import { createRequire } from "node:module";
import { text } from "node:stream/consumers";

export const load = createRequire(`${process.argv[2]}/`);

// `connect(job, answer)` returns `call(tool, arguments)`, which returns a result of tools/call, and `close()`.
// `answer(params)` answers a question: with the next answer of the call, or by declining if there is none.
// The job's `desktop` is the address that opens links; see tests/clients/desktop.py.
const MAX_CONTINUATIONS = 5;

export async function drive(connect) {
  const job = JSON.parse(await text(process.stdin));
  const open = (link) => job.desktop && fetch(`${job.desktop}?url=${encodeURIComponent(link)}`);
  const outcomes = [];
  let answers = [];
  let asked = [];
  const answer = async ({ message, url }) => {
    asked.push(url === undefined ? message : `${message} ${url}`);
    if (url !== undefined) await open(url);
    const content = answers.shift();
    if (content === undefined) return { action: "decline" };
    return url === undefined ? { action: "accept", content } : { action: "accept" };
  };
  const client = await connect(job, answer);
  for (const each of job.calls) {
    answers = [...each.answers];
    asked = [];
    const results = [];
    let [tool, args] = [each.tool, each.arguments];
    try {
      for (;;) {
        const result = await client.call(tool, args);
        const said = result.content.map((block) => block.text).join("\n");
        const data = result.structuredContent ?? null;
        const recalled = result._meta?.["roundtrip/recalled"] ?? null;
        const handle = job.desktop && !result.isError && said.match(/handle='([^']+)'/);
        if (!handle || results.length > MAX_CONTINUATIONS) {
          outcomes.push(result.isError ? { error: said, asked, results } : { text: said, asked, data, results, recalled });
          break;
        }
        results.push(said);
        const link = said.match(/https?:\/\/\S+/);
        if (link) await open(link[0]);
        [tool, args] = ["continue_call", { handle: handle[1] }];
      }
    } catch (error) {
      outcomes.push({ error: `${error.message}`, asked, results });
    }
  }
  await client.close();
  process.stdout.write(JSON.stringify(outcomes), () => process.exit(0));
}
