// Stored tasks and waiting calls, with the allowed actions.

function taskActions(task) {
  const buttons = actionButtons(task.call, task.tool, task.actions, refresh);
  if (task.actions.includes("answer")) {
    const link = make("a", "", "Answer");
    link.href = callAddress(task.call);
    buttons.push(link);
  }
  return buttons.length ? make("div", "actions", ...buttons) : "";
}

startList({
  words: "tasks",
  none: "No stored task or call matches.",
  rows: (tasks) => tasks.tasks,
  keyOf: (task) => task.call,
  columns: [
    ["State", (task) => stateBadge(task.state)],
    ["Tool", (task) => make("b", "", task.tool)],
    ["Call", (task) => linkToCall(task.call)],
    ["Created", (task) => task.created],
    ["Changed", (task) => task.changed],
    ["Next", (task) => task.next],
    ["Approvals", (task) => task.approvals.join(", ")],
    ["Actions", taskActions],
  ],
  menus: [["state", "State"]],
  choices: (tasks) => ({ state: tasks.states }),
  count: (tasks) => {
    const listed = `${countText(tasks.tasks.length, "task")}${tasks.more ? ", and others that are not listed" : ""}`;
    return tasks.counted ? `${listed}. The filter counts ${tasks.counted} of the stored calls` : listed;
  },
});
