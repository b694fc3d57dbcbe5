// Sequence diagram with the messages between client and instances. Only the visible rows are drawn.

const ROW = 30;
const HEAD = 34;
const LANE = 168;
const EDGE = 64;
const LETTER = 6.4;
const LONGEST = 72;

const exchange = { call: null, position: 0, go: null, width: 0, rows: null, from: 0, to: 0 };

function laneOf(participant) {
  return EDGE + participant * LANE;
}

function drawExchange(call, position, go) {
  const height = call.messages.length * ROW + 16;
  const width = call.messages.reduce(
    (most, [, source, target, text]) =>
      Math.max(most, laneOf(Math.min(source, target)) + 16 + Math.min(text.length, LONGEST) * LETTER),
    Math.max(laneOf(call.participants.length - 1) + EDGE, byId("exchange-pane").clientWidth),
  );
  const head = draw("svg", { class: "lanes", width, height: HEAD, viewBox: `0 0 ${width} ${HEAD}`, "aria-hidden": "true" });
  const body = draw("svg", { class: "messages", width, height, viewBox: `0 0 ${width} ${height}`, role: "img" });
  body.append(draw("title", {}, "Sequence diagram"), draw("desc", {}, described(call)));
  call.participants.forEach((name, number) => {
    const x = laneOf(number);
    head.append(
      draw("rect", { class: "lane-head", x: x - 58, y: 4, width: 116, height: 26, rx: 6 }),
      draw("text", { x, y: 21, "text-anchor": "middle" }, shortened(name, 15), draw("title", {}, name)),
    );
    body.append(draw("path", { class: "lane", d: `M${x} 0V${height}` }));
  });
  const rows = draw("g", {});
  body.append(rows);
  byId("exchange-pane").replaceChildren(head, body);
  Object.assign(exchange, { call, position, go, width, rows, from: 0, to: 0 });
  drawMessages();
}

function drawMessages() {
  const { call, rows, position, width, go } = exchange;
  const pane = byId("exchange-pane");
  const from = Math.max(0, Math.floor(pane.scrollTop / ROW) - 10);
  const to = Math.min(call.messages.length, from + Math.ceil(pane.clientHeight / ROW) + 20);
  const shown = call.messages.slice(from, to).map((message, offset) => messageOf(message, from + offset, width, go));
  rows.replaceChildren(...shown);
  shown.forEach((group, offset) => group.classList.toggle("here", call.messages[from + offset][4] === position));
  Object.assign(exchange, { from, to });
}

function messageOf([kind, source, target, text, step], row, width, go) {
  const y = row * ROW + 24;
  const [from, to] = [laneOf(source), laneOf(target)];
  const shown = shortened(text, LONGEST);
  const group = draw("g", { class: `message ${kind}` });
  group.append(draw("title", {}, text), draw("rect", { class: "band", x: 0, y: y - 22, width, height: ROW }));
  if (kind === "note") {
    group.append(draw("text", { x: from + 10, y: y - 5 }, shown));
  } else {
    const way = to > from ? 1 : -1;
    const tip = kind === "rejection" ? `M${to - 4} ${y - 4}l8 8m0 -8l-8 8` : `M${to} ${y}l${-9 * way} -4.5v9z`;
    group.append(
      draw("path", { class: "line", d: `M${from} ${y}H${to}` }),
      draw("path", { class: kind === "rejection" ? "cross" : "head", d: tip }),
      draw("text", { x: Math.min(from, to) + 10, y: y - 6 }, shown),
    );
  }
  group.addEventListener("click", () => go(step));
  return group;
}

// Text alternative for screen readers.
function described(call) {
  const { participants } = call;
  const sentences = call.messages.slice(0, 200).map(([kind, source, target, text]) =>
    kind === "note" ? `${participants[source]}: ${text}.` : `${participants[source]} to ${participants[target]}: ${text}.`,
  );
  return sentences.join(" ");
}

function markExchange(position) {
  const { messages } = exchange.call;
  exchange.position = position;
  const first = messages.findIndex((message) => message[4] === position);
  if (first !== -1) {
    const pane = byId("exchange-pane");
    const after = messages.findIndex((message, row) => row > first && message[4] !== position);
    const top = first * ROW;
    const bottom = (after === -1 ? messages.length : after) * ROW + HEAD + 16;
    // Do not use scrollIntoView, which would also scroll the page.
    if (top < pane.scrollTop || bottom > pane.scrollTop + pane.clientHeight) {
      pane.scrollTop = Math.max(0, top - ROW);
    }
  }
  drawMessages();
}

byId("exchange-pane").addEventListener("scroll", () => {
  if (exchange.call === null) {
    return;
  }
  const pane = byId("exchange-pane");
  const top = Math.floor(pane.scrollTop / ROW);
  if (top < exchange.from || Math.min(exchange.call.messages.length, top + pane.clientHeight / ROW) > exchange.to) {
    drawMessages();
  }
});
