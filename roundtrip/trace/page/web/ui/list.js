// A live list, whose updates keep the rows, the focus and the scroll position.

const source = { ...data.live };
const drawnRows = new Map();
let askAgain = () => {};
let kind = null;
let list = data;
let isAsked = false;

function look() {
  const address = new URL(data.live.url, document.baseURI);
  address.search = String(query);
  source.url = address.href;
}

// `of` describes the list. It contains the columns, the menus, the text fields and the page's texts. Each column is a name
// and a function that returns a row's cell. Two more functions return the rows and the choices from the data.
function startList(of) {
  kind = { menus: [], lines: [], choices: () => ({}), keyOf: (row) => JSON.stringify(row), ...of };
  drawPages();
  byId("columns-row").replaceChildren(...columnHeads(kind.columns.map(([name]) => name)));
  makeFilters(kind.menus, kind.lines, () => {
    isAsked = true;
    refresh();
  });
  showsScrolling(byId("list-pane"), byId("list-more"));
  drawList();
  look();
  askAgain = follow(source, (fresh) => {
    list = fresh;
    drawList();
  });
  document.documentElement.dataset.ready = "true";
}

function refresh() {
  look();
  askAgain();
}

function drawList() {
  drawFilters(kind.choices(list), list.error ?? "");
  write(byId("list-error"), list.error ?? "");
  const anchor = topRow();
  const before = anchor?.getBoundingClientRect().top;
  arrange(byId("rows"), rowsOf(kind.rows(list)));
  if (anchor?.isConnected) {
    scrollBy(0, anchor.getBoundingClientRect().top - before);
  }
  const count = kind.count(list);
  write(byId("count"), count);
  if (isAsked) {
    isAsked = false;
    write(byId("list-said"), count);
  }
  const none = byId("none");
  none.hidden = kind.rows(list).length > 0 || Boolean(list.error);
  byId("list-pane").hidden = kind.rows(list).length === 0;
  write(none, kind.none);
  drawPager();
  updateScrolling();
}

// The first visible row, if rows above it are scrolled out of view.
function topRow() {
  const rows = [...byId("rows").children];
  if (!rows.length || rows[0].getBoundingClientRect().top >= 0) {
    return null;
  }
  return rows.find((row) => row.getBoundingClientRect().bottom > 0) ?? null;
}

function rowsOf(wanted) {
  const times = new Map();
  const keys = wanted.map((one) => {
    const key = kind.keyOf(one);
    times.set(key, (times.get(key) ?? 0) + 1);
    return `${times.get(key)} ${key}`;
  });
  const kept = new Set(keys);
  for (const key of [...drawnRows.keys()]) {
    if (!kept.has(key)) {
      drawnRows.delete(key);
    }
  }
  return wanted.map((one, place) => rowFor(keys[place], one));
}

function rowFor(key, one) {
  const content = JSON.stringify(one);
  let drawn = drawnRows.get(key);
  if (drawn === undefined) {
    drawn = { element: make("tr", ""), content: "" };
    drawn.element.setAttribute("role", "row");
    drawnRows.set(key, drawn);
  }
  if (drawn.content !== content) {
    drawn.content = content;
    redraw(drawn.element, ...kind.columns.map(([name, cell]) => cellOf(name, cell(one))));
  }
  return drawn.element;
}

function drawPager() {
  const older = byId("older");
  older.hidden = !list.next;
  older.href = addressWith("after", list.next ?? null);
  write(older, `Older ${kind.words}`);
  const newest = byId("newest");
  newest.hidden = !query.has("after");
  newest.href = addressWith("after", null);
  write(newest, `Newest ${kind.words}`);
}

function countText(number, word) {
  return `${number} ${word}${number === 1 ? "" : "s"}`;
}
