// Fork form: the round at which the fork begins, and a text field for each different answer.

const forkLines = new Map();
let openKeys = [];

function recordedQuestions(round) {
  const step = call.steps.filter((one) => one.column === String(round)).at(-1);
  return step ? [...step.questions, ...step.approvals] : [];
}

function drawFork() {
  const { fork } = call;
  const isPossible = fork !== null && fork.rounds.length > 0;
  byId("fork-form").hidden = !isPossible;
  byId("fork-why").hidden = isPossible;
  write(byId("fork-why"), `This call cannot be forked: ${call.fork_why || "it asked nothing"}.`);
  if (!isPossible) {
    return;
  }
  byId("fork-run-box").hidden = !fork.run;
  const menu = byId("fork-at");
  const rounds = fork.rounds.map(String);
  if ([...menu.options].map((option) => option.value).join() !== rounds.join()) {
    const before = menu.value;
    menu.replaceChildren(...rounds.map((round) => make("option", "", round)));
    menu.value = rounds.includes(before) ? before : rounds[0];
  }
  drawForkLines();
}

// The round's recorded questions, and those that the last fork left open.
function drawForkLines() {
  const keys = [...new Set([...recordedQuestions(byId("fork-at").value).map((question) => question.key), ...openKeys])];
  for (const key of keys) {
    if (!forkLines.has(key)) {
      const line = lineOf(`fork-answer-${forkLines.size}`, "text", "");
      line.setAttribute("aria-describedby", "fork-hint");
      const label = make("label", "", key);
      label.htmlFor = line.id;
      forkLines.set(key, { line, box: make("div", "control", label, line) });
    }
  }
  arrange(byId("fork-lines"), keys.map((key) => forkLines.get(key).box));
}

async function forkCall() {
  const answers = [...forkLines].filter(([, { line, box }]) => box.isConnected && line.value).map(([key, { line }]) => `${key}=${line.value}`);
  const at = Number(byId("fork-at").value);
  const said = byId("fork-said");
  said.className = "quiet";
  write(said, "Replaying…");
  const reply = await send("fork", { call: call.call, at, answers, run: call.fork.run && byId("fork-run").checked });
  if (!reply.fork) {
    said.className = "remark failure";
    write(said, reply.error ?? Object.values(reply.errors ?? {}).join(" "));
    byId("forked").replaceChildren();
    return;
  }
  said.className = "";
  write(said, `Forked at round ${reply.fork.at}. ${forkEnd(reply.fork.fork)}`);
  drawForked(reply.fork);
  const last = reply.fork.rounds.at(-1);
  openKeys = last ? last.questions.map((question) => question.key).filter((key) => last.answers[key] === undefined) : [];
  drawForkLines();
}

byId("fork-at").addEventListener("change", () => {
  openKeys = [];
  drawForkLines();
});
byId("fork-form").addEventListener("submit", (event) => {
  event.preventDefault();
  forkCall();
});
