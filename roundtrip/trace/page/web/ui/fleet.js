// Fleet figures from the newest calls. A part is redrawn only if its figures have changed.

const LEFT = ["declined", "cancelled", "expired", "waiting"];
const parts = [
  {
    title: "Calls over time",
    of: (fleet) => fleet.minutes,
    columns: ["From", "Begun", "Failed"],
    rows: (minutes) => minutes.map(([from, begun, failed]) => [from, String(begun), String(failed)]),
    chart: (minutes) => [minutesOf(minutes), make("p", "legend", make("span", "", swatch("calls"), " begun"), make("span", "", swatch("failed"), ` failed. ${minutesTold(minutes)}`))],
  },
  {
    title: "Tools",
    of: (fleet) => fleet.tools,
    columns: ["Tool", "Calls", "Per minute", "Failed", "Declined", "Server time: p50, p90, p99", "Waiting: p50, p90, p99", "Rounds: calls", "Asked again"],
    rows: toolRows,
  },
  {
    title: "Where users leave",
    of: (fleet) => fleet.left,
    columns: ["Question", "Tool", "Declined", "Cancelled", "Expired", "Waiting", "All"],
    rows: leftRows,
  },
  {
    title: "Reasons to ask or reject",
    of: (fleet) => fleet.reasons,
    columns: ["Reason", "Calls", "Share"],
    rows: (reasons) => withBars(reasons, "calls", (one, bar) => [filtered("reason", one.reason), [String(one.calls), " ", bar], one.share]),
  },
  {
    title: "Instances",
    of: (fleet) => fleet.instances,
    columns: ["Instance", "Calls", "Build", "Builds", "Last line", "Clock"],
    rows: (instances) =>
      withBars(instances, "calls", (one, bar) => [filtered("instance", one.name), [String(one.calls), " ", bar], one.build, String(one.builds), one.last, one.clock]),
  },
  {
    title: "Builds",
    of: (fleet) => fleet.builds,
    columns: ["Build", "Calls", "First", "Last"],
    rows: (builds) => withBars(builds, "calls", (one, bar) => [filtered("build", one.build, one.name), [String(one.calls), " ", bar], one.first, one.last]),
  },
  {
    title: "Keys",
    of: (fleet) => fleet.keys ?? [],
    remark: (fleet) => (fleet.counted ? `Based on ${fleet.counted} stored calls.` : ""),
    columns: ["Key", "Stored calls"],
    rows: (keys) => withBars(keys, "tasks", (one, bar) => [make("code", "", one.name), [String(one.tasks), " ", bar]]),
  },
];

// A link to the calls behind a figure.
function filtered(name, value, text = value) {
  const link = make("a", "", text);
  link.href = `./?${new URLSearchParams({ [name]: value })}`;
  return link;
}

function withBars(all, part, rowOf) {
  const most = Math.max(1, ...all.map((one) => one[part]));
  return all.map((one) => rowOf(one, barOf([["calls", one[part]]], most)));
}

function toolRows(tools) {
  const longest = (part) => Math.max(1, ...tools.flatMap((tool) => tool[part].map(durationOf)));
  const [server, waiting] = [longest("server"), longest("waiting")];
  return tools.map((tool) => [
    filtered("tool", tool.tool),
    String(tool.calls),
    tool.per_minute,
    tool.failed,
    tool.declined,
    [tool.server.join(", "), " ", percentilesOf(tool.server, server)],
    [tool.waiting.join(", "), " ", percentilesOf(tool.waiting, waiting)],
    [tool.rounds.map(([rounds, calls]) => `${rounds}: ${calls}`).join(", "), " ", columnsOf(tool.rounds)],
    tool.again,
  ]);
}

function leftRows(left) {
  const all = (one) => LEFT.reduce((sum, way) => sum + one[way], 0);
  const most = Math.max(1, ...left.map(all));
  return left.map((one) => [
    make("b", "", one.question),
    filtered("tool", one.tool),
    ...LEFT.map((way) => make("span", "", swatch(way), ` ${one[way]}`)),
    [`${all(one)} `, barOf(LEFT.map((way) => [way, one[way]]), most)],
  ]);
}

function minutesTold(minutes) {
  if (!minutes.length) {
    return "";
  }
  const most = Math.max(...minutes.map(([, begun]) => begun));
  const failed = minutes.reduce((sum, [, , number]) => sum + number, 0);
  return `From ${minutes[0][0]} to ${minutes.at(-1)[0]}, at most ${most} begun per interval, ${failed} failed.`;
}

function makePart(part, place) {
  const id = `figure-${place}`;
  const heading = make("h2", "", part.title);
  heading.id = id;
  const pane = tableOf(part.title, part.columns, []);
  const above = make("div", "");
  const section = make("section", "figure", heading, above);
  section.setAttribute("aria-labelledby", id);
  section.append(part.chart ? make("details", "", make("summary", "", "As a table"), pane) : pane);
  return { ...part, section, above, body: pane.querySelector("tbody"), drawn: "" };
}

function drawFleet(fleet) {
  const { calls, since, until, total } = fleet.sample;
  write(byId("sample"), calls ? `From ${calls < total ? `the newest ${calls} of ${total}` : `all ${calls}`} calls, ${since} to ${until}.` : "No calls.");
  for (const part of drawnParts) {
    const figures = part.of(fleet);
    const content = JSON.stringify(figures);
    part.section.hidden = !figures.length;
    if (content !== part.drawn) {
      part.drawn = content;
      redraw(part.body, ...rowsFor(part.columns, part.rows(figures)));
      const remark = part.remark?.(fleet);
      redraw(part.above, ...(part.chart?.(figures) ?? []), ...(remark ? [make("p", "quiet", remark)] : []));
    }
  }
}

drawPages();
const drawnParts = parts.map(makePart);
byId("figures").append(...drawnParts.map((part) => part.section));
drawFleet(data);
follow(data.live, drawFleet);
document.documentElement.dataset.ready = "true";
