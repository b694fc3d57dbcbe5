// Actions on stored calls: a button for each action, a confirmation dialog, and a line with the result.

const ACTIONS = new Map([
  ["cancel", ["Cancel", "Cancel this call?", "The call ends now, and its state is cancelled.", "Cancel the call"]],
  ["retry", ["Retry", "Retry this call?", "A worker continues the lost call after its stored steps.", "Retry the call"]],
  ["expire", ["Expire", "Expire this call?", "The call and its pending approvals expire now.", "Expire the call"]],
  ["remind", ["Remind", "Send a reminder?", "The groups with pending approvals are notified again.", "Send the reminder"]],
]);
let asked = null;

// Buttons for the allowed actions. `done` runs after an action was sent.
function actionButtons(call, tool, actions, done) {
  return actions
    .filter((action) => ACTIONS.has(action))
    .map((action) => {
      const [name] = ACTIONS.get(action);
      const button = make("button", "", name);
      button.type = "button";
      button.setAttribute("aria-label", readable(`${name} ${call}`));
      button.setAttribute("aria-haspopup", "dialog");
      button.addEventListener("click", () => askFirst({ call, tool, action, done }));
      return button;
    });
}

function askFirst(wanted) {
  asked = wanted;
  const [, title, about, act] = ACTIONS.get(wanted.action);
  write(byId("sure-title"), title);
  redraw(byId("sure-call"), make("b", "", wanted.tool ?? ""), " ", make("code", "", wanted.call));
  write(byId("sure-about"), about);
  byId("sure-even-once").hidden = wanted.action !== "retry";
  byId("even-once").checked = false;
  write(byId("sure-act"), act);
  byId("sure").showModal();
  // Do not use `autofocus`, which would request the focus when the page loads and the dialog is still closed.
  byId("sure-back").focus();
}

function sayActed(said) {
  const line = byId("acted");
  const wrong = said.error ?? (said.errors ? Object.values(said.errors).join(" ") : "");
  line.className = wrong ? "remark failure" : "remark good";
  write(line, wrong || said.done || "Done.");
}

async function act() {
  const { call, action, done } = asked;
  const isEvenOnce = byId("even-once").checked;
  byId("sure").close();
  sayActed({ done: "Working…" });
  sayActed(await send("act", { call, action, even_once: action === "retry" && isEvenOnce }));
  done();
}

byId("sure-back").addEventListener("click", () => byId("sure").close());
byId("sure-act").addEventListener("click", act);
byId("sure").addEventListener("close", () => {
  // The button that opened the dialog may have been redrawn, so it cannot get the focus back.
  if (document.activeElement === document.body) {
    byId("acted").tabIndex = -1;
    byId("acted").focus({ preventScroll: true });
  }
});
