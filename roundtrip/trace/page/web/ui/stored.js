// Stored call: its facts, the allowed actions, and the questions that a test user can answer.

let drawnActions = "";
let drawnLines = "";
const drawnCards = new Map();

function drawStored() {
  const { stored } = call;
  byId("stored").hidden = !stored;
  if (!stored) {
    return;
  }
  write(byId("stored-state"), stored.state);
  byId("stored-state").dataset.state = stored.state;
  definitions(byId("stored-facts"), stored.facts);
  const actions = JSON.stringify(stored.actions);
  if (actions !== drawnActions) {
    drawnActions = actions;
    redraw(byId("stored-actions"), ...actionButtons(call.call, call.tool, stored.actions, () => askAgain()));
  }
  drawStoredQuestions(stored.actions.includes("answer") ? stored.questions : []);
}

// If a form has not changed, keep the texts that the user has typed.
function drawStoredQuestions(questions) {
  const keys = new Set(questions.map((question) => question.key));
  const box = byId("stored-questions");
  for (const [key, { card }] of [...drawnCards]) {
    if (!keys.has(key)) {
      const hadFocus = card.contains(document.activeElement);
      drawnCards.delete(key);
      card.remove();
      if (hadFocus) {
        box.tabIndex = -1;
        box.focus({ preventScroll: true });
      }
    }
  }
  for (const question of questions) {
    const content = JSON.stringify(question);
    if (drawnCards.get(question.key)?.content !== content) {
      drawCard(question, content);
    }
  }
  arrange(box, questions.map((question) => drawnCards.get(question.key).card));
}

function drawCard(question, content, errors = {}) {
  const drawn = drawnCards.get(question.key);
  const form = question.fields === null ? elsewhere(question) : answerForm(question, content, errors);
  const card = drawn?.card ?? make("article", "open");
  if (drawn) {
    typeInto(form, typedIn(card));
  }
  redraw(card, make("h3", "", question.key), question.message ? make("p", "message-text", question.message) : null, form);
  drawnCards.set(question.key, { card, content });
}

function answerForm(question, content, errors) {
  const form = make("form", "");
  form.noValidate = true;
  form.setAttribute("aria-label", readable(`Answer to ${question.key}`));
  const wrong = make("p", "wrong", errors[""] ?? "");
  wrong.setAttribute("role", "alert");
  const buttons = [["accept", question.fields.length ? "Answer" : "Accept"], ["decline", "Decline"], ["cancel", "Cancel"]].map(([action, name]) => {
    const button = make("button", action === "accept" ? "first" : "", name);
    button.type = action === "accept" ? "submit" : "button";
    if (action !== "accept") {
      button.addEventListener("click", () => sendAnswer(question, content, action, form));
    }
    return button;
  });
  form.append(...controlsOf(question.fields, errors), wrong, make("div", "actions", ...buttons));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    sendAnswer(question, content, "accept", form);
  });
  return form;
}

// Only forms can be answered here.
function elsewhere(question) {
  return make("p", "quiet", question.url ? "The user answers this question on a page, not here." : "This question has no form that can be answered here.");
}

async function sendAnswer(question, content, action, form) {
  const fields = action === "accept" ? typedIn(form) : {};
  const said = await send("answer", { call: call.call, key: question.key, action, fields });
  if (said.errors || said.error) {
    if (drawnCards.has(question.key)) {
      drawCard(question, content, said.errors ?? { "": said.error });
      drawnCards.get(question.key).card.querySelector("[aria-invalid=true]")?.focus();
    }
    return;
  }
  sayActed(said);
  askAgain();
}

// Actions on this call, from the operator log.
function drawLog() {
  byId("log").hidden = !call.actions.length;
  const rows = call.actions.map((one) => [one.at, one.by, make("b", "", one.action), stateBadge(one.outcome), one.why]);
  const content = JSON.stringify(call.actions);
  if (drawnLines !== content) {
    drawnLines = content;
    byId("log-lines").replaceChildren(tableOf("Actions on this call", ["At", "By", "Action", "Outcome", "Why"], rows));
  }
}
