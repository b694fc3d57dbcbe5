// The list of calls, newest first.

const AGES = ["10m", "1h", "1d", "7d"];

function callState(call) {
  return [
    stateBadge(call.state, call.symbol),
    // The style sheet cuts this text off. The call page shows the whole text.
    call.why ? titled(make("p", "row-why", call.why), call.why) : null,
    call.waits ? make("p", "row-waits", "waiting for ", make("b", "", call.waits)) : null,
  ];
}

function titled(element, text) {
  element.title = readable(text);
  return element;
}

startList({
  words: "calls",
  none: "No call matches.",
  rows: (calls) => calls.calls,
  keyOf: (call) => call.call,
  columns: [
    ["State", callState],
    ["Tool", (call) => make("b", "", call.tool)],
    ["Call", (call) => linkToCall(call.call)],
    ["Rounds", (call) => String(call.rounds)],
    ["Reasons", (call) => call.reasons.join(", ")],
    ["Server", (call) => call.server],
    ["Waiting", (call) => call.waiting],
    ["Started", (call) => call.started],
    ["Instances", (call) => call.instances.join(", ")],
    ["Build", (call) => call.build],
  ],
  menus: [
    ["tool", "Tool"],
    ["state", "State"],
    ["reason", "Reason"],
    ["build", "Build"],
    ["principal", "Principal"],
    ["instance", "Instance"],
    ["failure", "Failure"],
  ],
  lines: [
    { name: "since", label: "Active within", placeholder: "10m, 1h, 1d", suggestions: AGES },
    { name: "before", label: "Began before", placeholder: "10m, 1h, 1d", suggestions: AGES },
    { name: "q", label: "Call", placeholder: "start of an id", delay: 250 },
  ],
  choices: (calls) => calls.choices,
  count: (calls) => `${calls.found_more ? "more than " : ""}${calls.found} of ${countText(calls.total, "call")}`,
});
