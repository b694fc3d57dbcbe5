// Details of a step: its questions with their forms and answers, the token, and the recorded lines.

function drawInspector(step) {
  write(byId("inspector-title"), step.name);
  const parts = [
    definitions(make("dl", "facts"), step.facts),
    ...step.rejections.map((rejection) => make("p", "remark", make("b", "", `⊗ token rejected (${rejection.reason}): `), rejection.why)),
    ...step.replays.map((why) => make("p", "remark", make("b", "", "↻ served again: "), why)),
    ...step.questions.map(questionCard),
    ...step.approvals.map(approvalCard),
    ...step.lost.map((answer) => make("p", "remark", make("b", "", `Answer to ${answer.key}: `), answerText(answer))),
    step.end ? endCard(step.end) : null,
    step.token ? tokenCard(step.token) : null,
    step.arguments ? folded("Arguments", "", () => [shownValue(step.arguments)]) : null,
    step.runs.length ? folded("Functions run", "", () => [runTable(step.runs)]) : null,
    folded("Recorded lines", ` (${step.lines.length})`, () => step.lines.flatMap(rawLine)),
  ];
  const pane = byId("inspected");
  pane.replaceChildren(...parts.filter((part) => part !== null));
  pane.scrollTop = 0;
}

// Sections stay open or closed from step to step. The content of a closed section is not drawn.
const unfolded = new Map([["Arguments", true], ["Functions run", false], ["Recorded lines", false]]);

function folded(name, remark, content) {
  const details = make("details", "", make("summary", "", name, remark));
  const body = make("div", "");
  function show() {
    unfolded.set(name, details.open);
    if (details.open && !body.childElementCount) {
      body.append(...content());
    }
  }
  details.append(body);
  details.open = unfolded.get(name);
  show();
  details.addEventListener("toggle", show);
  return details;
}

function shownValue(value) {
  return value.hidden === undefined ? make("pre", "value", value.text) : make("p", "quiet", `(${value.hidden})`);
}

function questionCard(question) {
  const again = question.reason !== "new";
  const card = make(
    "article",
    "question",
    make("h3", "", question.key, " ", make("span", again ? "badge again" : "badge", again ? `↻ ${question.reason}` : "new")),
    make("p", "why", question.why),
  );
  const form = make("div", "form");
  form.setAttribute("role", "group");
  form.setAttribute("aria-label", readable(`${question.key} as shown to the user`));
  if (question.message) {
    form.append(
      question.message.hidden === undefined ? make("p", "message-text", question.message.text) : shownValue(question.message),
    );
  }
  if (question.complaint) {
    form.append(make("p", "quiet", "The last answer was invalid:"), shownValue(question.complaint));
  }
  if (question.url) {
    form.append(make("p", "quiet", "Page to open (not a link here):"), shownValue(question.url));
  }
  if (question.fields) {
    const [only] = question.fields;
    const single = question.fields.length === 1 && only.required && only.name === "value" && only.label === "Value";
    form.append(...question.fields.map((field) => fieldOf(field, single)));
  } else if (question.form) {
    form.append(make("p", "quiet", "The form:"), shownValue(question.form));
  }
  if (question.kind === "sample" || question.kind === "roots") {
    form.append(make("p", "quiet", question.kind === "sample" ? "A question to the client's model." : "A request for the client's roots."));
  }
  card.append(form, answerOf(question));
  return card;
}

function approvalCard(approval) {
  const { decision } = approval;
  const symbols = { approved: "✓", rejected: "✗", expired: "⊘" };
  const outcome = decision ? `${symbols[decision.outcome]} ${decision.outcome}, ${decision.at}` : "… No decision yet.";
  const answer = make("div", "answer", make("b", "", outcome));
  if (decision?.data) {
    answer.append(shownValue(decision.data));
  }
  return make(
    "article",
    "question",
    make("h3", "", approval.key, " ", make("span", "badge", "approval")),
    make("p", "why", `${approval.by} must decide.`),
    make("div", "form", approval.message.hidden === undefined ? make("p", "message-text", approval.message.text) : shownValue(approval.message)),
    answer,
  );
}

// Show no label for a single value, because its name only repeats the question.
function fieldOf(field, single) {
  const label = make("p", "label", make("b", "", field.label), field.required ? " (required)" : "");
  if (field.label !== field.name) {
    label.append(make("code", "quiet", ` ${readable(field.name)}`));
  }
  const box = single ? make("div", "field") : make("div", "field", label);
  if (field.about) {
    box.append(make("p", "quiet", field.about));
  }
  if (field.options.length) {
    const [on, off] = field.many ? ["☑", "☐"] : ["◉", "○"];
    const options = field.options.map((option) =>
      make("li", option.chosen ? "chosen" : "", `${option.chosen ? on : off} ${option.label}`),
    );
    box.append(make("ul", "options", ...options));
  } else {
    box.append(make("p", "entry", field.value || " "));
  }
  if (!field.given && field.value) {
    box.append(make("p", "quiet", "default value"));
  }
  return box;
}

function answerText(answer) {
  return `${answer.action}${answer.remark ? ` (${answer.remark})` : ""}`;
}

function answerOf(question) {
  const { answer } = question;
  if (!answer) {
    return make("p", "answer", "… No answer yet.");
  }
  const symbols = { accept: "✓", decline: "✗", cancel: "⊘" };
  const shown = make("div", "answer", make("b", "", `${symbols[answer.action] || "?"} Answer: ${answerText(answer)}`));
  if (answer.data && (answer.data.hidden !== undefined || !question.fields)) {
    shown.append(shownValue(answer.data));
  }
  return shown;
}

function tokenCard(token) {
  const card = make("article", "token", make("h3", "", "Token"), make("p", "", token.text));
  const list = make("ul", "changes");
  for (const [symbol, how, parts] of [["+", "added", token.added], ["−", "dropped", token.dropped], ["~", "changed", token.changed]]) {
    for (const part of parts) {
      list.append(make("li", how, make("b", "", `${symbol} `), make("code", "", part), make("span", "quiet", ` ${how}`)));
    }
  }
  card.append(list.childElementCount ? list : make("p", "quiet", "Its content did not change."));
  return card;
}

function endCard(end) {
  const card = make("article", "end", make("h3", "", `The call ${["declined", "rejected"].includes(end.state) ? "was " : ""}${end.state}`));
  if (end.decline) {
    card.append(make("p", "", end.decline));
  }
  if (end.error) {
    card.append(make("p", "", make("code", "", end.error)), end.text ? shownValue(end.text) : "");
  }
  if (end.result) {
    card.append(make("p", "quiet", end.is_error ? "Error result:" : "Result:"), shownValue(end.result));
  }
  return card;
}

function runTable(runs) {
  const head = make("tr", "", ...["Kind", "Name", "Outcome", "Time"].map((name) => make("th", "", name)));
  const rows = runs.map((run) => make("tr", "", ...run.map((cell) => make("td", "", cell))));
  return make("table", "runs", make("thead", "", head), make("tbody", "", ...rows));
}

function rawLine(line) {
  const text = make("pre", "raw", spreadOut(line.text));
  text.tabIndex = 0;
  text.setAttribute("role", "region");
  text.setAttribute("aria-label", readable(line.title));
  return [make("p", "quiet", line.title), text];
}

// Indent JSON without parsing it, because parsing would change large numbers.
function spreadOut(json) {
  let depth = 0;
  let spread = "";
  for (const [token] of json.matchAll(/"(?:[^"\\]|\\.)*"|\{\}|\[\]|[[\]{},:]|[^[\]{},:"\s]+/g)) {
    if (token === "{" || token === "[") {
      depth += 1;
      spread += `${token}\n${"  ".repeat(depth)}`;
    } else if (token === "}" || token === "]") {
      depth -= 1;
      spread += `\n${"  ".repeat(depth)}${token}`;
    } else {
      spread += token === "," ? `,\n${"  ".repeat(depth)}` : token === ":" ? ": " : token;
    }
  }
  return spread;
}
