// Form controls for the fields that the page's server describes, and the texts typed into them.

function controlsOf(fields, errors = {}) {
  return fields.map((field) => controlOf(field, errors[field.id]));
}

function controlOf(field, error) {
  const isGroup = ["radios", "checkboxes", "moment"].includes(field.control);
  const box = make(isGroup ? "fieldset" : "div", "control");
  const label = make(isGroup ? "legend" : "label", "", field.label, field.required ? "" : make("span", "quiet", " (optional)"));
  if (!isGroup) {
    label.htmlFor = field.id;
  }
  box.append(label);
  const describedBy = [];
  for (const [part, text, className] of [["about", field.about, "quiet about"], ["hint", field.hint, "quiet"], ["error", error, "wrong"]]) {
    if (text) {
      const line = make("p", className, text);
      line.id = `${field.id}-${part}`;
      describedBy.push(line.id);
      box.append(line);
    }
  }
  const inputs = inputsOf(field);
  for (const input of inputs) {
    if (describedBy.length) {
      input.setAttribute("aria-describedby", describedBy.join(" "));
    }
    if (error) {
      input.setAttribute("aria-invalid", "true");
    }
  }
  if (["radios", "checkboxes"].includes(field.control)) {
    const list = make("div", "choices");
    inputs.forEach((input, place) => list.append(make("label", "choice", input, " ", field.options[place].label)));
    box.append(list);
  } else if (field.control === "moment") {
    box.append(make("div", "choices", ...inputs));
  } else {
    box.append(...inputs);
  }
  return box;
}

function inputsOf(field) {
  switch (field.control) {
    case "radios":
    case "checkboxes":
      return field.options.map((option) => {
        const input = make("input", "");
        input.type = field.control === "radios" ? "radio" : "checkbox";
        Object.assign(input, { id: option.id, name: field.id, value: option.wire, checked: option.chosen });
        return input;
      });
    case "menu":
      return [menuOf(field.id, "", field.options)];
    case "lines": {
      const input = make("textarea", "");
      Object.assign(input, { id: field.id, name: field.id, rows: 3, value: field.typed[0] ?? "", spellcheck: false });
      return [input];
    }
    case "moment": {
      const local = lineOf(field.id, "datetime-local", field.typed[0] ?? "");
      local.step = "1";
      local.setAttribute("aria-label", readable(`${field.label}: date and time`));
      const zones = [{ id: `${field.id}-none`, wire: "", label: "Time zone", chosen: false }, ...field.zones];
      const zone = menuOf(`${field.id}-zone`, readable(`${field.label}: time zone`), zones);
      return [local, zone];
    }
    default: {
      const line = lineOf(field.id, field.control === "date" ? "date" : "text", field.typed[0] ?? "");
      if (field.mode) {
        line.inputMode = field.mode;
      }
      return [line];
    }
  }
}

function lineOf(id, type, value) {
  const input = make("input", "");
  input.type = type;
  Object.assign(input, { id, name: id, value, autocomplete: "off", spellcheck: false });
  return input;
}

function menuOf(id, label, options) {
  const menu = make("select", "");
  Object.assign(menu, { id, name: id });
  if (label) {
    menu.setAttribute("aria-label", label);
  }
  for (const option of options) {
    const shown = make("option", "", option.label);
    Object.assign(shown, { value: option.wire, selected: option.chosen });
    menu.append(shown);
  }
  return menu;
}

// Return a form's texts by control name.
function typedIn(form) {
  const fields = {};
  for (const input of form.querySelectorAll("input[name], select[name], textarea[name]")) {
    if (!["radio", "checkbox"].includes(input.type)) {
      fields[input.name] = [input.value];
    } else if (input.checked) {
      fields[input.name] = [...(fields[input.name] ?? []), input.value];
    }
  }
  return fields;
}

// Restore the texts in a form that was redrawn.
function typeInto(form, fields) {
  for (const input of form.querySelectorAll("input[name], select[name], textarea[name]")) {
    if (["radio", "checkbox"].includes(input.type)) {
      input.checked = (fields[input.name] ?? []).includes(input.value);
    } else if (fields[input.name]) {
      [input.value] = fields[input.name];
    }
  }
}
