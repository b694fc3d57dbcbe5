// Rejected tokens with their reasons, newest first.

startList({
  words: "rejected tokens",
  none: "No rejected token matches.",
  rows: (rejected) => rejected.rejected,
  columns: [
    ["Reason", (one) => make("b", "", one.reason)],
    ["At", (one) => one.at],
    ["Tool", (one) => one.tool],
    ["Instance", (one) => one.instance],
    ["Call", (one) => (one.call === null ? make("span", "quiet", "unknown") : linkToCall(one.call, one.known))],
    ["Why", (one) => one.text],
  ],
  menus: [["reason", "Reason"]],
  choices: (rejected) => ({ reason: rejected.reasons }),
  count: (rejected) => `${countText(rejected.rejected.length, "rejected token")} on this page`,
});
