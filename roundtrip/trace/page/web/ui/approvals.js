// Approvals: the approvers, the deadline and the decision.

startList({
  words: "approvals",
  none: "No approvals.",
  rows: (approvals) => approvals.approvals,
  keyOf: (approval) => JSON.stringify([approval.call, approval.name]),
  columns: [
    ["State", (approval) => stateBadge(approval.state)],
    ["Approval", (approval) => [make("b", "", approval.name), approval.message ? make("p", "quiet", approval.message) : null]],
    ["By", (approval) => approval.by],
    ["Tool", (approval) => approval.tool],
    ["Call", (approval) => linkToCall(approval.call)],
    ["Opened", (approval) => approval.opened],
    ["Until", (approval) => approval.until],
    ["Decided", (approval) => [approval.decided, approval.who ? make("p", "quiet", `by ${approval.who}`) : null]],
    [
      "Actions",
      (approval) => {
        const buttons = actionButtons(approval.call, approval.tool, approval.actions, refresh);
        return buttons.length ? make("div", "actions", ...buttons) : "";
      },
    ],
  ],
  count: (approvals) => countText(approvals.approvals.length, "approval"),
});
