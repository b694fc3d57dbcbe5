// The playground: choose a tool, call it, answer its questions, and inspect the call.

let state = data;
let chosenTool = null;
let chosenCall = state.call?.id ?? "";
let drawnTools = null;
let askAtOnce = () => {};
const live = { ...state.live };

function look() {
  live.url = `state.json?${new URLSearchParams({ call: chosenCall })}`;
}

// Server and tools.

function drawServer() {
  const { server } = state;
  write(byId("target"), server.target);
  write(byId("server"), server.name);
  document.title = readable(`${server.name || server.target} – playground`);
  const broken = byId("broken");
  broken.hidden = !server.failure;
  write(broken, server.failure);
}

function toolNamed(name) {
  return state.tools.find((tool) => tool.name === name);
}

function drawTools() {
  const wanted = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = state.tools.filter((tool) => wanted.every((word) => `${tool.name}\n${tool.title}`.toLowerCase().includes(word)));
  const hadFocus = document.activeElement?.closest("#tool-list") ? document.activeElement.dataset.tool : null;
  byId("tool-list").replaceChildren(
    ...shown.map((tool) => {
      const button = make("button", "", tool.name);
      button.type = "button";
      button.dataset.tool = tool.name;
      button.setAttribute("aria-current", String(tool.name === chosenTool));
      button.addEventListener("click", () => chooseTool(tool.name));
      return make("li", "", button);
    }),
  );
  [...byId("tool-list").querySelectorAll("button")].find((button) => button.dataset.tool === hadFocus)?.focus();
  // If listing the tools failed, the failure is shown beside the server's name.
  byId("no-tools").hidden = shown.length > 0 || (Boolean(state.server.failure) && !state.tools.length);
  write(byId("no-tools"), state.tools.length ? "No tool matches." : state.toolsVersion ? "The server has no tools." : "Starting…");
}

function chooseTool(name, { focus = true } = {}) {
  chosenTool = name;
  drawTools();
  drawToolForm();
  if (focus) {
    (byId("tool-form").querySelector("input, select, textarea, button") ?? byId("tool-form")).focus();
  }
}

function drawToolForm(errors = {}) {
  const tool = toolNamed(chosenTool);
  byId("tool").hidden = !tool;
  if (!tool) {
    return;
  }
  const form = byId("tool-form");
  const isSame = form.dataset.tool === tool.name;
  const typed = isSame ? typedIn(form) : null;
  const wasOpen = isSame && form.querySelector("details.as-json")?.open;
  const json = isSame ? form.querySelector("#arguments-json").value : "{}";
  write(byId("tool-title"), tool.title === tool.name ? tool.name : `${tool.title} (${tool.name})`);
  write(byId("tool-marks"), tool.marks.join(", "));
  write(byId("tool-about"), tool.about);
  const entry = make("textarea", "");
  Object.assign(entry, { id: "arguments-json", rows: 5, value: json, spellcheck: false });
  const label = make("label", "", "Arguments as JSON (sent while this section is open)");
  label.htmlFor = "arguments-json";
  const schema = make("pre", "raw", tool.schema);
  schema.tabIndex = 0;
  const asJson = make("details", "as-json", make("summary", "", "As JSON"), make("div", "control", label, entry, make("p", "quiet", "Argument schema:"), schema));
  asJson.open = Boolean(wasOpen);
  const call = make("button", "first", "Call");
  call.type = "submit";
  const wrong = make("p", "wrong", errors[""] ?? "");
  wrong.setAttribute("role", "alert");
  form.replaceChildren(
    ...controlsOf(tool.fields, errors),
    tool.fields.length ? "" : make("p", "quiet", "This tool takes no arguments."),
    asJson,
    wrong,
    make("div", "actions", call),
  );
  form.dataset.tool = tool.name;
  if (typed) {
    typeInto(form, typed);
  }
}

async function begin() {
  const form = byId("tool-form");
  const asJson = form.querySelector("details.as-json").open;
  const asked = await send("begin", {
    tool: chosenTool,
    ...(asJson ? { json: byId("arguments-json").value } : { fields: typedIn(form) }),
    era: byId("era").value,
    client: byId("client").value,
    tasks: byId("tasks").checked,
  });
  if (asked.call === undefined) {
    drawToolForm(asked.errors ?? { "": asked.error });
    form.querySelector("[aria-invalid=true]")?.focus();
    return;
  }
  drawToolForm();
  form.querySelector("button.first").focus();
  chooseCall(asked.call);
}

// List of calls.

const SYMBOLS = { executing: "▸", awaiting_input: "…", completed: "✓", failed: "✗", declined: "⊘", cancelled: "■" };

function drawCalls() {
  const hadFocus = document.activeElement?.closest("#call-list") ? document.activeElement.dataset.call : null;
  byId("call-list").replaceChildren(
    ...state.calls.map((one) => {
      const button = make("button", "", `${SYMBOLS[one.state]} ${one.tool} `, make("span", "quiet", one.state));
      button.type = "button";
      button.dataset.call = one.id;
      button.setAttribute("aria-current", String(one.id === chosenCall));
      button.addEventListener("click", () => chooseCall(one.id));
      return make("li", "", button);
    }),
  );
  [...byId("call-list").querySelectorAll("button")].find((button) => button.dataset.call === hadFocus)?.focus();
  byId("no-calls").hidden = state.calls.length > 0;
}

function chooseCall(id) {
  chosenCall = id;
  look();
  askAtOnce();
}

let drawnCall = null;
let drawnQuestions = new Map();
let drawnResult = "";
let drawnHappened = "";

function drawConversation() {
  const shown = state.call;
  byId("conversation").hidden = !shown;
  if (!shown) {
    return;
  }
  if (drawnCall !== shown.id) {
    drawnCall = shown.id;
    byId("conversation").dataset.call = shown.id;
    drawnQuestions = new Map();
    drawnResult = "";
    drawnHappened = "";
    byId("questions").replaceChildren();
    byId("app").replaceChildren();
    byId("test").replaceChildren();
    byId("test").hidden = true;
    call = null;
    drawnTrace = "";
    position = 0;
  }
  write(byId("conversation-title"), `Call of ${shown.tool}, ${shown.era}`);
  const badge = byId("call-state");
  write(badge, `${SYMBOLS[shown.state]} ${shown.state}`);
  badge.dataset.state = shown.state;
  byId("stop").hidden = shown.over;
  byId("make-test").hidden = !shown.over || !state.writesTests;
  const failure = byId("failure");
  failure.hidden = !shown.failure;
  write(failure, shown.failure);
  drawHappened(shown);
  drawQuestions(shown);
  if (shown.app && !byId("app").childElementCount) {
    byId("app").append(appFrame(shown, `${state.frames}${shown.id}`));
  }
  drawResult(shown);
}

function drawHappened(shown) {
  const content = JSON.stringify(shown.happened);
  if (content === drawnHappened) {
    return;
  }
  drawnHappened = content;
  byId("happened").replaceChildren(
    ...shown.happened.map((one) => {
      const line = make("li", "", make("span", "quiet", `${one.kind} `), one.text);
      if (one.done !== null) {
        const bar = make("progress", "");
        bar.value = one.done;
        bar.setAttribute("aria-label", "progress");
        line.append(" ", bar);
      }
      return line;
    }),
  );
}

function drawQuestions(shown) {
  let first = null;
  for (const question of shown.questions) {
    const isOpen = !question.answer && !shown.over;
    const drawn = drawnQuestions.get(question.id);
    if (drawn && drawn.isOpen === isOpen) {
      continue;
    }
    const card = isOpen ? openQuestion(shown, question) : answeredQuestion(question);
    if (drawn) {
      const hadFocus = drawn.card.contains(document.activeElement);
      drawn.card.replaceWith(card);
      if (hadFocus) {
        byId("conversation-title").tabIndex = -1;
        byId("conversation-title").focus({ preventScroll: true });
      }
    } else {
      byId("questions").append(card);
      if (isOpen) {
        first ??= card;
        write(byId("said"), `The server asks: ${question.message || "for your folders"}`);
      }
    }
    drawnQuestions.set(question.id, { isOpen, card });
  }
  const active = document.activeElement;
  if (first && (active === document.body || active.closest("#conversation") || active.matches("#tool-form button"))) {
    first.querySelector("input, select, textarea, a, button").focus();
  }
}

function titleOf(question) {
  return make("h3", "", question.key ?? "Question", " ", make("span", "badge", question.kind));
}

const ACCEPT = { form: "Answer", page: "I visited the page", model: "Answer", roots: "Answer" };

function openQuestion(shown, question, errors = {}, typed = null) {
  const form = make("form", "");
  form.noValidate = true;
  form.setAttribute("aria-label", readable(`Answer to ${question.key ?? "the question"}`));
  form.append(...bodyOf(question, errors));
  const accept = make("button", "first", question.kind === "form" && !question.fields.length ? "Accept" : ACCEPT[question.kind]);
  const decline = make("button", "", "Decline");
  const cancel = make("button", "", "Cancel");
  const answers = question.kind === "form" || question.kind === "page" ? [accept, decline, cancel] : [accept, decline];
  [["accept", accept], ["decline", decline], ["cancel", cancel]].forEach(([action, button]) => {
    button.type = action === "accept" ? "submit" : "button";
    if (action !== "accept") {
      button.addEventListener("click", () => answer(action));
    }
  });
  const wrong = make("p", "wrong", errors[""] ?? "");
  wrong.setAttribute("role", "alert");
  form.append(wrong, make("div", "actions", ...answers));
  if (typed) {
    typeInto(form, typed);
  }
  const card = make("article", "open", titleOf(question), question.message ? make("p", "message-text", question.message) : null, form);
  async function answer(action) {
    const fields = typedIn(form);
    const text = form.querySelector(".free-text")?.value ?? "";
    const said = await send("answer", { call: shown.id, question: question.id, action, fields, text });
    if (said.errors || said.error) {
      const again = openQuestion(shown, question, said.errors ?? { "": said.error }, fields);
      card.replaceWith(again);
      drawnQuestions.set(question.id, { isOpen: true, card: again });
      again.querySelector("[aria-invalid=true]")?.focus();
    }
  }
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    answer("accept");
  });
  return card;
}

function bodyOf(question, errors) {
  if (question.kind === "page") {
    return [make("p", "address", "Address: ", make("code", "", question.url)), question.opens ? outwardLink(question.url, "Open the page") : make("p", "quiet", "Not a link, because it is not a plain http(s) address.")];
  }
  if (question.kind === "model" || question.kind === "roots") {
    const said = (question.said ?? []).map(([role, text]) => make("div", "", make("p", "quiet", role), make("pre", "value", text)));
    const id = `${question.id}-text`;
    const label = make("label", "", question.kind === "model" ? "The model's answer" : "Your folders, one address per line, such as file:///home/ada");
    label.htmlFor = id;
    const entry = make("textarea", "free-text");
    Object.assign(entry, { id, name: id, rows: 4 });
    if (errors[id]) {
      entry.setAttribute("aria-invalid", "true");
    }
    return [...said, make("div", "control", label, errors[id] ? make("p", "wrong", errors[id]) : null, entry)];
  }
  return controlsOf(question.fields, errors);
}

function outwardLink(url, text) {
  const link = make("a", "", text);
  link.href = url;
  link.target = "_blank";
  link.rel = "noopener noreferrer";
  return link;
}

function answeredQuestion(question) {
  const { answer } = question;
  const outcome = answer ? `${answer.action}${answer.text ? ": " : ""}` : "not answered";
  return make(
    "article",
    "",
    titleOf(question),
    question.message ? make("p", "message-text", question.message) : null,
    make("p", "answer", make("b", "", outcome), answer?.text ? make("code", "", answer.text) : null),
  );
}

// Result.

function drawResult(shown) {
  const content = JSON.stringify([shown.result, shown.state]);
  if (content === drawnResult) {
    return;
  }
  drawnResult = content;
  if (shown.over) {
    write(byId("said"), `The call is ${stateWords(shown.state)}.`);
  }
  const box = byId("result");
  box.replaceChildren();
  if (!shown.result) {
    return;
  }
  const { blocks, structured, isError, recalled, waits } = shown.result;
  const article = make("article", "result", make("h3", "", isError ? "Error" : "Result"), ...blocks.map(blockOf));
  if (structured !== null) {
    const value = make("details", "", make("summary", "", "Structured"), make("pre", "value", structured));
    value.open = !blocks.length;
    article.append(value);
  }
  if (!blocks.length && structured === null) {
    article.append(make("p", "quiet", "The result is empty."));
  }
  if (recalled) {
    article.append(make("p", "quiet", readable(`Nothing ran: a call with the same intent ended at ${recalled}.`)));
  }
  if (waits && toolNamed(waits.tool)) {
    const fillFields = make("button", "", `Fill in ${waits.tool}, as a model would`);
    fillFields.type = "button";
    fillFields.addEventListener("click", () => {
      chooseTool(waits.tool);
      const field = toolNamed(waits.tool).fields.find((one) => one.name === "handle");
      byId(field.id).value = waits.handle;
    });
    article.append(make("p", "quiet", "The call is waiting. Its handle continues it."), fillFields);
  }
  box.append(article);
}

function blockOf(block) {
  switch (block.kind) {
    case "text":
      return make("pre", "value", block.text);
    case "picture": {
      const picture = make("img", "");
      picture.src = block.source;
      picture.alt = readable(`Picture in the result (${block.about})`);
      return make("p", "", picture, make("span", "quiet", ` ${block.about}`));
    }
    case "sound": {
      const sound = make("audio", "");
      sound.controls = true;
      sound.src = block.source;
      sound.setAttribute("aria-label", readable(`Sound in the result (${block.about})`));
      return make("p", "", sound, make("span", "quiet", ` ${block.about}`));
    }
    case "link":
      return make("p", "address", block.name ? `${block.name}: ` : "", block.opens ? outwardLink(block.uri, block.uri) : make("code", "", block.uri), block.about ? ` ${block.about}` : "");
    default: {
      const save = make("button", "", `Save ${block.name}`);
      save.type = "button";
      save.addEventListener("click", () => saveFile(block));
      const shown = block.text ? make("pre", "value", block.text) : null;
      return make("div", "", make("p", "address", block.uri ? make("code", "", block.uri) : "File", make("span", "quiet", ` ${block.about}`)), shown, save);
    }
  }
}

// Save as untyped bytes, so that the browser does not open the file.
function saveFile(block) {
  const bytes = block.data === null ? block.text : Uint8Array.from(atob(block.data), (char) => char.charCodeAt(0));
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([bytes], { type: "application/octet-stream" }));
  link.download = block.name;
  link.click();
  URL.revokeObjectURL(link.href);
}

// Pending approvals.

const drawnApprovals = new Map();

function drawApprovals() {
  const { pending, note } = state.approvals;
  byId("approvals").hidden = !pending.length && !note;
  write(byId("approvals-note"), note);
  for (const [id, card] of drawnApprovals) {
    if (!pending.some((approval) => approval.id === id)) {
      const hadFocus = card.contains(document.activeElement);
      card.remove();
      drawnApprovals.delete(id);
      if (hadFocus) {
        byId(byId("approvals").hidden ? "conversation-title" : "approvals-title").focus({ preventScroll: true });
      }
    }
  }
  for (const approval of pending) {
    if (!drawnApprovals.has(approval.id)) {
      const card = decisionCard(approval);
      drawnApprovals.set(approval.id, card);
      byId("approval-list").append(card);
      write(byId("said"), `Approval by ${approval.by} needed: ${approval.message}`);
    }
  }
}

function decisionCard(approval) {
  const form = make("form", "");
  form.setAttribute("aria-label", readable(`Decision about ${approval.tool}`));
  const reason = make("input", "");
  Object.assign(reason, { id: `reason-${approval.id}`, autocomplete: "off" });
  const label = make("label", "", "Reason");
  label.htmlFor = reason.id;
  const wrong = make("p", "wrong");
  wrong.setAttribute("role", "alert");
  const decisions = [["approve", "Approve"], ["reject", "Reject"]].map(([decision, text]) => {
    const button = make("button", "", text);
    button.type = "button";
    button.addEventListener("click", async () => {
      const said = await send("decide", { approval: approval.id, decision, reason: reason.value });
      write(wrong, said.error ?? "");
    });
    return button;
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.append(make("div", "control", label, reason), wrong, make("div", "actions", ...decisions));
  return make(
    "article",
    "open",
    make("h3", "", approval.tool, " ", make("span", "badge", approval.by)),
    make("p", "message-text", approval.message),
    make("p", "quiet", `Requested by ${approval.caller}. Decide by ${approval.until}.`),
    form,
  );
}

// Tests.

async function makeTest() {
  const box = byId("test");
  const id = chosenCall;
  box.hidden = false;
  box.replaceChildren(make("p", "quiet", "Writing and running the test…"));
  write(byId("said"), "Writing and running the test.");
  byId("make-test").disabled = true;
  const test = await send("test", { call: id });
  byId("make-test").disabled = false;
  if (id !== drawnCall) {
    return;
  }
  if (test.error) {
    box.replaceChildren(make("p", "remark", `No test: ${test.error}.`));
    write(byId("said"), `No test: ${test.error}`);
    return;
  }
  const verdict = test.passed ? "The test passes." : test.passed === null ? "The test did not run." : "The test fails, so it was deleted.";
  const where = test.file ? [" Written to ", make("code", "", test.file), "."] : [];
  const source = make("details", "", make("summary", "", "The test"), make("pre", "value", test.source));
  source.open = test.passed !== true;
  box.replaceChildren(make("p", test.passed ? "remark good" : "remark", make("b", "", verdict), ...where, test.passed && test.text ? ` ${test.text}` : ""), source);
  if (!test.passed && test.text) {
    box.append(make("pre", "value", test.text));
  }
  write(byId("said"), verdict);
}

// Details of the call: states, trace, token, messages and log.

let drawnTrace = "";
let drawnTokens = "";
let drawnMessages = null;
let drawnLog = "";

// On this page, only the trace panes show the current step; the address does not.
function moved() {}

function drawBeside() {
  drawTrace(state.call?.trace ?? null);
  drawTokens(state.call?.tokens ?? []);
  drawWire(state.call);
  drawLog();
}

function drawTrace(trace) {
  const note = state.server.traced && state.call?.over
    ? "The playground has no trace of this call. A server with its own trace= records elsewhere, or not at all."
    : state.server.traced
    ? "The trace appears after the first leg of the call."
    : "States and traces need a roundtrip server that this command started.";
  for (const element of document.querySelectorAll(".untraced")) {
    element.hidden = trace !== null;
    write(element, note);
  }
  for (const element of document.querySelectorAll(".traced")) {
    element.hidden = trace === null;
  }
  const content = JSON.stringify(trace);
  if (trace === null || content === drawnTrace) {
    return;
  }
  drawnTrace = content;
  const isAtEnd = call === null || position === call.steps.length - 1;
  call = trace;
  byId("trace-link").href = `call?${new URLSearchParams({ id: trace.call })}`;
  definitions(byId("facts"), trace.facts);
  drawStates(trace);
  drawSteps();
  go(isAtEnd ? call.steps.length - 1 : position, { announced: false });
}

function drawStates(trace) {
  const passed = trace.steps.flatMap((step) => step.moves.map(([source]) => source));
  const states = [...passed, trace.state].slice(-60);
  byId("states").replaceChildren(...states.map((name) => make("li", "", name)));
}

function drawTokens(tokens) {
  const content = JSON.stringify(tokens);
  if (content === drawnTokens) {
    return;
  }
  drawnTokens = content;
  const cards = tokens.map((token, place) => tokenOf(token, place, tokens.length)).reverse();
  byId("tokens").replaceChildren(...(cards.length ? cards : [make("p", "quiet", "On 2026-07-28, each round has a token, which the client returns with its answers. This call has no token yet.")]));
}

function tokenOf(token, place, count) {
  const title = `Round ${place + 1}${place === count - 1 ? ", the newest" : ""}`;
  const card = make("article", "token", make("h3", "", title), definitions(make("dl", "facts"), token.facts));
  for (const [name, rows, head] of [
    ["Answers", token.answers, ["Question", "Outcome", "Content"]],
    ["Open questions", token.asked, ["Question", ""]],
    ["Recorded results", token.computed, ["Name", "Value"]],
  ]) {
    if (rows.length) {
      const table = make("table", "", make("caption", "unseen", name), make("thead", "", make("tr", "", ...head.map((cell) => make(cell ? "th" : "td", "", cell)))));
      table.append(make("tbody", "", ...rows.map((row) => make("tr", "", ...row.map((cell) => make("td", "", cell))))));
      card.append(make("p", "quiet", name), table);
    }
  }
  card.append(make("details", "", make("summary", "", "As the client sees it"), make("pre", "value", token.text)));
  return card;
}

function drawWire(shown) {
  const box = byId("messages");
  const messages = shown?.messages ?? [];
  if (drawnMessages !== shown?.id) {
    drawnMessages = shown?.id;
    box.replaceChildren();
  }
  const more = byId("messages-more");
  more.hidden = !shown?.leftOut;
  write(more, `${shown?.leftOut} more messages were not recorded.`);
  // Append only new messages, so that messages that the user has opened stay open.
  for (const message of messages.slice(box.childElementCount)) {
    const way = message.from === "client" ? "→" : "←";
    const entry = make("details", message.from, make("summary", "", `${way} ${message.title} `, make("span", "quiet", message.at)));
    entry.addEventListener("toggle", () => {
      if (entry.open && entry.childElementCount === 1) {
        entry.append(make("pre", "value", spreadOut(message.text)));
      }
    });
    box.append(entry);
  }
}

function drawLog() {
  const content = JSON.stringify(state.notices);
  if (content !== drawnLog) {
    drawnLog = content;
    byId("log").replaceChildren(...state.notices.map((one) => make("li", one.level, one.text)));
  }
}

function take(fresh) {
  const isOther = fresh.call && chosenCall && fresh.call.id !== chosenCall;
  state = isOther ? { ...fresh, call: state.call } : fresh;
  chosenCall ||= state.call?.id ?? "";
  drawServer();
  if (drawnTools !== state.toolsVersion) {
    drawnTools = state.toolsVersion;
    drawTools();
    if (toolNamed(chosenTool)) {
      drawToolForm();
    } else if (state.tools.length) {
      chooseTool(state.tools[0].name, { focus: false });
    } else {
      drawToolForm();
    }
  }
  drawCalls();
  drawConversation();
  drawApprovals();
  drawBeside();
}

byId("tool-form").addEventListener("submit", (event) => {
  event.preventDefault();
  begin();
});
byId("stop").addEventListener("click", () => send("stop", { call: chosenCall }));
byId("make-test").addEventListener("click", makeTest);
byId("filter").addEventListener("input", drawTools);
byId("settings").addEventListener("submit", (event) => event.preventDefault());
byId("era").addEventListener("change", () => {
  byId("tasks").disabled = byId("era").value !== "2026-07-28";
});
document.addEventListener("keydown", (event) => {
  const isTyping = event.target.matches("input, select, textarea");
  if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    byId("filter").focus();
  } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && event.target.matches("textarea")) {
    event.target.form?.requestSubmit();
  }
});
byId("panel-rounds").addEventListener("keydown", stepByKey);
wireTabs(document.querySelector("[role=tablist]"));
for (const tab of document.querySelectorAll("[role=tab]")) {
  tab.addEventListener("shown", () => {
    if (call !== null) {
      // Draw the steps again, because they were first drawn in a hidden pane, which has no size.
      drawSteps();
      go(position, { announced: false });
    }
  });
}
watchPanes();
look();
take(state);
askAtOnce = follow(live, take);
document.documentElement.dataset.ready = "true";
