// Call page: its header, the step in its address, and live updates. Each update fires a `drawn` event for other scripts.

function placeInAddress() {
  const found = /^#step-(\d+)$/.exec(location.hash);
  return found ? Number(found[1]) - 1 : null;
}

function moved(place) {
  const fragment = `#step-${place + 1}`;
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
  drawSteps();
  document.dispatchEvent(new CustomEvent("drawn"));
}

function updated(fresh) {
  const more = fresh.steps.length - call.steps.length;
  call = fresh;
  drawCall();
  go(position, { announced: false });
  if (more > 0) {
    write(byId("announced"), `${more === 1 ? "One more step" : `${more} more steps`}. The call is ${stateWords(call.state)}.`);
  }
}

document.addEventListener("keydown", (event) => {
  if (!event.target.closest("input, select, textarea, dialog")) {
    stepByKey(event);
  }
});
window.addEventListener("hashchange", () => {
  const place = placeInAddress();
  if (place !== null && place !== position) {
    go(place);
  }
});

call = data;
drawCall();
watchPanes();
// Start at the failure, if there is one.
go(placeInAddress() ?? (call.failure ? call.failure.step : 0), { announced: false });
byId("home").hidden = !call.live || Boolean(call.nav);
const askAgain = call.live ? follow(call.live, updated) : () => {};
document.documentElement.dataset.ready = "true";
