// One call: where the reader is, and how they move.

let call = data;
let position = 0;
let inspected = "";

function placeInAddress() {
  const found = /^#step-(\d+)$/.exec(location.hash);
  return found ? Number(found[1]) - 1 : null;
}

function within(place) {
  return Math.min(Math.max(place, 0), call.steps.length - 1);
}

function go(place, { announced = true } = {}) {
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
    // Not `disabled`, which would take the focus away from the button that was just used.
    byId(id).setAttribute("aria-disabled", String(disabled));
  }
  tellScrolling();
  if (announced) {
    const asked = step.questions.map((question) => `${question.key} (${question.reason})`).join(", ");
    write(byId("announced"), `${step.name}, ${where}. ${asked ? `Asked: ${asked}. ` : ""}The call is ${step.state}.`);
  }
  const fragment = `#step-${position + 1}`;
  if (location.hash !== fragment) {
    location.replace(fragment);
  }
}

function drawCall() {
  write(byId("tool"), call.tool);
  write(byId("call"), call.call);
  const state = byId("state");
  write(state, `${call.symbol} ${call.state}`);
  state.dataset.state = call.state;
  byId("share").setAttribute("width", String(Math.max(3, call.share * 1000)));
  definitions(byId("facts"), call.facts);
  const failure = byId("failure");
  failure.hidden = !call.failure;
  write(failure, call.failure ? call.failure.why : "");
  drawLegend(call);
  drawExchange(call, position, go);
}

const KEYS = new Map([
  ["ArrowRight", () => position + 1],
  ["j", () => position + 1],
  ["ArrowLeft", () => position - 1],
  ["k", () => position - 1],
  ["Home", () => 0],
  ["End", () => call.steps.length - 1],
]);

document.addEventListener("keydown", (event) => {
  const target = KEYS.get(event.key);
  const pane = event.target.closest(".scroll");
  if (event.key.startsWith("Arrow") && pane && pane.id !== "timeline-pane" && scrollsSideways(pane)) {
    return;
  }
  if (target && !event.ctrlKey && !event.altKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault();
    go(target());
  }
});
for (const [id, target] of [
  ["first", () => 0],
  ["previous", () => position - 1],
  ["next", () => position + 1],
  ["last", () => call.steps.length - 1],
]) {
  byId(id).addEventListener("click", () => go(target()));
}
window.addEventListener("hashchange", () => {
  const place = placeInAddress();
  if (place !== null && place !== position) {
    go(place);
  }
});

drawCall();
for (const [pane, hint] of [
  ["timeline-pane", "timeline-more"],
  ["exchange-pane", "exchange-more"],
  ["machine-pane", "machine-more"],
  ["inspected", "inspector-more"],
]) {
  showsScrolling(byId(pane), byId(hint));
}
byId("inspected").addEventListener("toggle", tellScrolling, true);
// What failed is what the reader came for.
go(placeInAddress() ?? (call.failure ? call.failure.step : 0), { announced: false });
if (call.live) {
  byId("home").hidden = false;
  follow(call.live, (fresh) => {
    const more = fresh.steps.length - call.steps.length;
    call = fresh;
    drawCall();
    go(position, { announced: false });
    if (more > 0) {
      write(byId("announced"), `${more} more to step to. The call is ${call.state}.`);
    }
  });
}
document.documentElement.dataset.ready = "true";
