// State machine drawing, with the path up to the current step and its state marked.

function markMachine(call, position) {
  const drawing = document.querySelector("#machine .rt-drawing");
  const visited = new Set();
  for (const step of call.steps.slice(0, position + 1)) {
    for (const [source, event] of step.moves) {
      visited.add(`${source} ${event}`);
    }
  }
  for (const arrow of drawing.querySelectorAll(".rt-arrow")) {
    const { source, event, target } = arrow.dataset;
    const isVisited = visited.has(`${source} ${event}`);
    arrow.classList.toggle("rt-visited", isVisited);
    write(arrow.querySelector("title"), `${source}: ${event} leads to ${target}${isVisited ? " (visited)" : ""}`);
  }
  for (const label of drawing.querySelectorAll(".rt-label")) {
    const { sources, event } = label.dataset;
    label.classList.toggle("rt-visited", sources.split(" ").some((source) => visited.has(`${source} ${event}`)));
  }
  const { state } = call.steps[position];
  for (const box of drawing.querySelectorAll(".rt-state")) {
    box.classList.toggle("rt-current", box.dataset.state === state);
  }
  const now = call.steps[position].moves.map(([, event]) => event).join(", ");
  write(byId("machine-state"), `${state}${now ? `, by ${now}` : ""}`);
  write(drawing.querySelector("desc"), `The call is ${stateWords(state)}. Visited: ${[...visited].join(", ") || "nothing"}.`);
}
