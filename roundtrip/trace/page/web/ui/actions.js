// The operator log: actions on calls, newest first.

startList({
  words: "actions",
  none: "The operator log has no actions.",
  rows: (log) => log.actions,
  columns: [
    ["At", (one) => one.at],
    ["By", (one) => one.by],
    ["Action", (one) => make("b", "", one.action)],
    ["Outcome", (one) => stateBadge(one.outcome)],
    ["Tool", (one) => one.tool],
    ["Call", (one) => linkToCall(one.call, one.known)],
    ["Why", (one) => one.why],
  ],
  count: (log) => `${countText(log.actions.length, "action")} on this page`,
});
