// Steps of a call in all panes, and navigation between them. The page defines `moved`.

let call = null;
let position = 0;
let inspected = "";

function within(place) {
  return Math.min(Math.max(place, 0), call.steps.length - 1);
}

function go(place, { announced = true } = {}) {
  if (call === null) {
    return;
  }
  position = within(place);
  const step = call.steps[position];
  drawTimeline(call, position, go);
  markExchange(position);
  markMachine(call, position);
  const content = JSON.stringify(step);
  if (content !== inspected) {
    inspected = content;
    drawInspector(step);
  }
  const where = `${position + 1} of ${call.steps.length}`;
  write(byId("place"), `${step.name} (${where})`);
  for (const [id, disabled] of [
    ["first", position === 0],
    ["previous", position === 0],
    ["next", position === call.steps.length - 1],
    ["last", position === call.steps.length - 1],
  ]) {
    // Do not use `disabled`, which would take the focus from the button that the user has just pressed.
    byId(id).setAttribute("aria-disabled", String(disabled));
  }
  updateScrolling();
  if (announced) {
    const asked = step.questions.map((question) => `${question.key} (${question.reason})`).join(", ");
    write(byId("announced"), `${step.name}, ${where}. ${asked ? `Asked: ${asked}. ` : ""}The call is ${stateWords(step.state)}.`);
  }
  moved(position);
}

function drawSteps() {
  drawLegend(call);
  drawExchange(call, position, go);
}

const STEP_KEYS = new Map([
  ["ArrowRight", () => position + 1],
  ["j", () => position + 1],
  ["ArrowLeft", () => position - 1],
  ["k", () => position - 1],
  ["Home", () => 0],
  ["End", () => call.steps.length - 1],
]);

function stepByKey(event) {
  const target = STEP_KEYS.get(event.key);
  const pane = event.target.closest(".scroll");
  if (event.key.startsWith("Arrow") && pane && pane.id !== "timeline-pane" && scrollsSideways(pane)) {
    return;
  }
  if (target && !event.ctrlKey && !event.altKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault();
    go(target());
  }
}

for (const [id, target] of [
  ["first", () => 0],
  ["previous", () => position - 1],
  ["next", () => position + 1],
  ["last", () => call.steps.length - 1],
]) {
  byId(id).addEventListener("click", () => go(target()));
}

function watchPanes() {
  for (const [pane, hint] of [
    ["timeline-pane", "timeline-more"],
    ["exchange-pane", "exchange-more"],
    ["machine-pane", "machine-more"],
    ["inspected", "inspector-more"],
  ]) {
    showsScrolling(byId(pane), byId(hint));
  }
  byId("inspected").addEventListener("toggle", updateScrolling, true);
}
