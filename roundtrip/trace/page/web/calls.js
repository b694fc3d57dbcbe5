// The list of calls, newest first, and the box that filters it.

const SHOWN = 500;
const filter = byId("filter");
let calls = data.calls;

function words(call) {
  return [call.call, call.tool, call.state, ...call.reasons, ...call.instances].join("\n").toLowerCase();
}

function rowOf(call) {
  const link = make("a", "", make("code", "", call.call));
  link.href = `call?${new URLSearchParams({ id: call.call })}`;
  const state = make("span", "badge", `${call.symbol} ${call.state}`);
  state.dataset.state = call.state;
  const cells = [state, make("b", "", call.tool), link, String(call.rounds), call.reasons.join(", "), call.server, call.waiting, call.started, call.instances.join(", ")];
  return make("tr", "", ...cells.map((cell) => make("td", "", cell)));
}

function drawCalls() {
  const wanted = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = calls.filter((call) => wanted.every((word) => words(call).includes(word)));
  const shown = found.slice(0, SHOWN);
  const focused = document.activeElement?.getAttribute("href");
  byId("rows").replaceChildren(...shown.map(rowOf));
  if (focused) {
    [...byId("rows").querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus();
  }
  const more = found.length > shown.length ? `, the newest ${shown.length} of them shown` : "";
  write(byId("count"), `${found.length} of ${calls.length} ${calls.length === 1 ? "call" : "calls"}${more}`);
  tellScrolling();
}

showsScrolling(byId("list-pane"), byId("list-more"));
filter.addEventListener("input", drawCalls);
drawCalls();
follow(data.live, (fresh) => {
  calls = fresh.calls;
  drawCalls();
});
document.documentElement.dataset.ready = "true";
