// Runs the calls of a job with a client. The job is JSON on standard input, the outcomes are JSON on standard output.
// usage: node CLIENT.mjs NODE_MODULES, where CLIENT.mjs imports this and calls `drive(connect)`.
import { createRequire } from "node:module";
import { text } from "node:stream/consumers";

export const load = createRequire(`${process.argv[2]}/`);

// `connect(job, answer)` returns `call(tool, arguments)`, which returns a result of tools/call, and `close()`.
// `answer(params)` answers a question: with the next answer of the call, or by declining if there is none.
export async function drive(connect) {
  const job = JSON.parse(await text(process.stdin));
  const outcomes = [];
  let answers = [];
  let asked = [];
  const answer = ({ message, url }) => {
    asked.push(url === undefined ? message : `${message} ${url}`);
    const content = answers.shift();
    if (content === undefined) return { action: "decline" };
    return url === undefined ? { action: "accept", content } : { action: "accept" };
  };
  const client = await connect(job, answer);
  for (const each of job.calls) {
    answers = [...each.answers];
    asked = [];
    try {
      const result = await client.call(each.tool, each.arguments);
      const said = result.content.map((block) => block.text).join("\n");
      const data = result.structuredContent ?? null;
      outcomes.push(result.isError ? { error: said, asked } : { text: said, asked, data });
    } catch (error) {
      outcomes.push({ error: `${error.message}`, asked });
    }
  }
  await client.close();
  process.stdout.write(JSON.stringify(outcomes), () => process.exit(0));
}
