// Page head: links to the other pages, and the names of user and server.

function drawPages() {
  const links = data.nav.map(({ name, href, current }) => {
    const link = make("a", "", name);
    link.href = href;
    if (current) {
      link.setAttribute("aria-current", "page");
    }
    return make("li", "", link);
  });
  byId("pages").replaceChildren(...links);
  const operator = byId("operator");
  operator.replaceChildren();
  fill(operator, [data.server ? make("code", "", data.server) : "no server", ` as ${data.user}`]);
}

function callAddress(id) {
  return `call?${new URLSearchParams({ id })}`;
}

function linkToCall(id, isKnown = true) {
  const name = make("code", "", id);
  if (!isKnown) {
    return name;
  }
  const link = make("a", "", name);
  link.href = callAddress(id);
  return link;
}

// A table cell with its column's name, because narrow pages show rows as cards.
function cellOf(name, content) {
  const parts = Array.isArray(content) ? content : [content];
  const cell = make("td", "", ...parts);
  cell.setAttribute("role", "cell");
  cell.dataset.column = name;
  cell.classList.toggle("empty", !cell.hasChildNodes() || (!cell.textContent && !cell.querySelector("svg")));
  return cell;
}

function columnHeads(names) {
  return names.map((name) => {
    const head = make("th", "", name);
    head.scope = "col";
    head.setAttribute("role", "columnheader");
    return head;
  });
}

function rowsFor(columns, rows) {
  return rows.map((contents) => {
    const row = make("tr", "", ...contents.map((content, place) => cellOf(columns[place], content)));
    row.setAttribute("role", "row");
    return row;
  });
}

// A table in a pane that scrolls by keyboard if the table is too wide.
function tableOf(label, columns, rows) {
  const head = make("thead", "", make("tr", "", ...columnHeads(columns)));
  const body = make("tbody", "", ...rowsFor(columns, rows));
  const table = make("table", "cards", head, body);
  table.setAttribute("role", "table");
  table.setAttribute("aria-label", label);
  [head, body].forEach((group) => group.setAttribute("role", "rowgroup"));
  head.firstElementChild.setAttribute("role", "row");
  const pane = make("div", "scroll", table);
  pane.tabIndex = 0;
  pane.setAttribute("role", "group");
  pane.setAttribute("aria-label", label);
  return pane;
}

function stateBadge(state, symbol = "") {
  const badge = make("span", "badge", symbol ? `${symbol} ${state}` : state);
  badge.dataset.state = state;
  return badge;
}

// Give an element these children, in this order. A child that stays in place keeps its focus.
function arrange(parent, children) {
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  const wanted = new Set(children);
  for (const child of [...parent.children]) {
    if (!wanted.has(child)) {
      child.remove();
    }
  }
  let next = parent.firstElementChild;
  for (const child of children) {
    if (child === next) {
      next = next.nextElementSibling;
    } else {
      parent.insertBefore(child, next);
    }
  }
  if (focused?.isConnected && document.activeElement !== focused) {
    focused.focus({ preventScroll: true });
  }
}

// Replace an element's content. The focus moves to the control with the same id or text, or else to the element.
function redraw(element, ...content) {
  const focused = element.contains(document.activeElement) && document.activeElement !== element ? document.activeElement : null;
  element.replaceChildren();
  fill(element, content);
  if (focused) {
    const isSame = (one) => (focused.id ? one.id === focused.id : one.textContent === focused.textContent);
    const again = [...element.querySelectorAll(focused.localName)].find(isSame);
    if (!again) {
      element.tabIndex = -1;
    }
    (again ?? element).focus({ preventScroll: true });
  }
}
