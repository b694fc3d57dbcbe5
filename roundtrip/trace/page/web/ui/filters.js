// List filters: menus with values and counts, and text fields. The page address has all of them.

const query = new URLSearchParams(location.search);
const menus = new Map();
const filterLines = new Map();

function changeQuery(change) {
  change();
  query.delete("after");
  history.replaceState(null, "", String(query) ? `?${query}` : location.pathname);
}

function addressWith(name, value) {
  const other = new URLSearchParams(query);
  if (value === null) {
    other.delete(name);
  } else {
    other.set(name, value);
  }
  return String(other) ? `?${other}` : location.pathname;
}

// The function `chosen` is called after each change.
function makeFilters(kinds, lines, chosen) {
  const form = byId("filters");
  form.hidden = !kinds.length && !lines.length;
  for (const [name, label] of kinds) {
    form.append(makeMenu(name, label, chosen));
  }
  for (const line of lines) {
    form.append(makeLine(line, chosen));
  }
  const clear = make("button", "", "Clear filters");
  Object.assign(clear, { type: "button", id: "clear" });
  clear.addEventListener("click", () => {
    changeQuery(() => [...menus.keys(), ...filterLines.keys()].forEach((name) => query.delete(name)));
    filterLines.forEach((input) => {
      input.value = "";
    });
    form.querySelector("summary, input")?.focus();
    chosen();
  });
  form.append(clear);
  form.addEventListener("submit", (event) => event.preventDefault());
  document.addEventListener("click", (event) => closeMenus(event.target.closest("details.menu")));
  document.addEventListener("focusin", (event) => closeMenus(event.target.closest("details.menu")));
}

function closeMenus(except) {
  for (const { details } of menus.values()) {
    if (details !== except) {
      details.open = false;
    }
  }
}

function makeMenu(name, label, chosen) {
  const chosenValues = make("span", "told");
  const summary = make("summary", "", label, chosenValues);
  const choices = make("div", "menu-choices");
  const details = make("details", "menu", summary, make("fieldset", "", make("legend", "unseen", label), choices));
  details.id = `menu-${name}`;
  details.addEventListener("change", () => {
    const values = [...choices.querySelectorAll("input:checked")].map((input) => input.value);
    changeQuery(() => {
      query.delete(name);
      values.forEach((value) => query.append(name, value));
    });
    showChosen();
    chosen();
  });
  details.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && details.open) {
      details.open = false;
      summary.focus();
    }
  });
  function showChosen() {
    const values = query.getAll(name);
    write(chosenValues, values.length ? `: ${shortened(values.map((value) => value || "(none)").join(", "), 40)}` : "");
  }
  menus.set(name, { details, choices, options: new Map(), showChosen });
  return details;
}

function makeLine({ name, label, placeholder, suggestions = [], delay = 0 }, chosen) {
  const input = make("input", "");
  Object.assign(input, { type: "text", id: `filter-${name}`, value: query.get(name) ?? "", placeholder, autocomplete: "off", spellcheck: false });
  input.setAttribute("aria-describedby", "list-error");
  const box = make("label", "filter", label, " ", input);
  if (suggestions.length) {
    const list = make("datalist", "", ...suggestions.map((one) => make("option", "", one)));
    list.id = `suggested-${name}`;
    input.setAttribute("list", list.id);
    box.append(list);
  }
  let timer = 0;
  function commit() {
    clearTimeout(timer);
    const value = input.value.trim();
    if (value === (query.get(name) ?? "")) {
      return;
    }
    changeQuery(() => (value ? query.set(name, value) : query.delete(name)));
    chosen();
  }
  input.addEventListener("change", commit);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      commit();
    }
  });
  if (delay) {
    input.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(commit, delay);
    });
  }
  filterLines.set(name, input);
  return box;
}

// `choices` has values with counts for each menu. A chosen value stays even if it has no calls, so that it can be cleared.
function drawFilters(choices, error) {
  for (const [name, menu] of menus) {
    const counts = new Map(choices[name] ?? []);
    const chosen = new Set(query.getAll(name));
    const values = [...new Set([...counts.keys(), ...chosen])];
    menu.details.hidden = !values.length;
    for (const value of values) {
      if (!menu.options.has(value)) {
        menu.options.set(value, makeChoice(value));
      }
      const option = menu.options.get(value);
      option.input.checked = chosen.has(value);
      write(option.count, String(counts.get(value) ?? 0));
    }
    // Keep the choices in an open menu in place.
    const before = menu.details.open ? [...menu.choices.children] : [];
    const wanted = values.map((value) => menu.options.get(value).label);
    const stay = before.filter((label) => wanted.includes(label));
    arrange(menu.choices, [...stay, ...wanted.filter((label) => !stay.includes(label))]);
    menu.showChosen();
  }
  for (const [name, input] of filterLines) {
    input.setAttribute("aria-invalid", String(error.startsWith(`${name} `)));
  }
  byId("clear").hidden = ![...menus.keys(), ...filterLines.keys()].some((name) => query.has(name));
}

function makeChoice(value) {
  const input = make("input", "");
  Object.assign(input, { type: "checkbox", value });
  const count = make("span", "quiet count");
  return { input, count, label: make("label", "choice", input, " ", make("span", "", value || "(none)"), " ", count) };
}
