// A row for each question, a column for each round. For long calls, only the part around the current step is drawn.

const COLUMNS = 24;
const ROWS = 40;
const NOTHING = ".";
const REUSED = "2";

function drawLegend(call) {
  byId("legend").replaceChildren(
    ...call.legend.map(([mark, symbol], place) => make("span", "", make("b", `mark mark-${place}`, symbol), ` ${mark}`)),
  );
}

function drawTimeline(call, position, go) {
  const grid = byId("grid");
  const from = Math.floor(position / COLUMNS) * COLUMNS;
  const steps = call.steps.slice(from, from + COLUMNS);
  const hadFocus = grid.contains(document.activeElement);

  const head = make("tr", "", make("th", "corner", "Question"));
  steps.forEach((step, offset) => head.append(columnHead(step, from + offset, position, go)));
  const body = make("tbody", "");
  const rows = call.rows.filter((row) => isMarked(row.marks.slice(from, from + COLUMNS)));
  const first = firstRow(rows, position);
  for (const row of rows.slice(first, first + ROWS)) {
    body.append(questionRow(call, row.key, row.marks.slice(from, from + COLUMNS), from, position));
  }
  if (!rows.length) {
    const none = make("td", "quiet", "No questions here.");
    none.colSpan = steps.length + 1;
    body.append(make("tr", "", none));
  }
  grid.replaceChildren(make("thead", "", head), body);
  write(byId("columns"), describedPart(call, from, steps.length, first, rows.length));

  const current = grid.querySelector("[aria-current]");
  if (call.steps.length > 8) {
    current.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  if (hadFocus) {
    current.focus({ preventScroll: true });
  }
}

function isMarked(marks) {
  return [...marks].some((mark) => mark !== NOTHING);
}

// If there are too many rows, show those around the questions that the current step asks.
function firstRow(rows, position) {
  if (rows.length <= ROWS) {
    return 0;
  }
  const asked = rows.findIndex((row) => row.marks[position] !== NOTHING && row.marks[position] !== REUSED);
  const middle = asked === -1 ? rows.length : asked;
  return Math.min(Math.max(0, middle - ROWS / 2), rows.length - ROWS);
}

function describedPart(call, from, columns, first, rows) {
  const parts = [];
  if (call.steps.length > COLUMNS) {
    parts.push(`Columns ${from + 1} to ${from + columns} of ${call.steps.length}`);
  }
  if (rows > ROWS) {
    parts.push(`questions ${first + 1} to ${first + ROWS} of ${rows} in these columns`);
  }
  return parts.join(", ");
}

function columnHead(step, place, position, go) {
  const button = make("button", "", step.column);
  button.type = "button";
  button.title = readable(step.name);
  button.setAttribute("aria-label", readable(step.name));
  button.tabIndex = place === position ? 0 : -1;
  if (place === position) {
    button.setAttribute("aria-current", "step");
  }
  button.addEventListener("click", () => go(place));
  const head = make("th", place === position ? "here" : "", button);
  head.scope = "col";
  return head;
}

function questionRow(call, key, marks, from, position) {
  const name = make("th", "key", shortened(key, 40));
  name.scope = "row";
  name.title = readable(key);
  const row = make("tr", "", name);
  [...marks].forEach((mark, offset) => {
    const cell = make("td", from + offset === position ? "here" : "");
    if (mark !== NOTHING) {
      const [meaning, symbol] = call.legend[Number(mark)];
      const shown = make("b", `mark mark-${mark}`, symbol);
      shown.setAttribute("aria-hidden", "true");
      cell.append(shown, make("span", "unseen", meaning));
      cell.title = meaning;
    }
    row.append(cell);
  });
  return row;
}
