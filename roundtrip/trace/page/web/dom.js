// These functions insert all transcript content as text, never as HTML.

const data = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";

function byId(id) {
  return document.getElementById(id);
}

// Escape characters that are invisible or that change the direction of neighboring text.
function readable(text) {
  return String(text).replace(
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g,
    (char) => `\\u{${char.charCodeAt(0).toString(16)}}`,
  );
}

function shortened(text, length) {
  const characters = Array.from(text);
  return characters.length <= length ? text : `${characters.slice(0, length - 1).join("")}…`;
}

// A state in a sentence: `awaiting_input` becomes `awaiting input`.
const stateWords = (state) => state.replaceAll("_", " ");

function fill(element, content) {
  for (const part of content) {
    if (part !== null && part !== undefined) {
      element.append(typeof part === "string" ? readable(part) : part);
    }
  }
  return element;
}

function make(name, className, ...content) {
  const element = document.createElement(name);
  if (className) {
    element.className = className;
  }
  return fill(element, content);
}

function draw(name, attributes, ...content) {
  const element = document.createElementNS(SVG, name);
  for (const [attribute, value] of Object.entries(attributes)) {
    element.setAttribute(attribute, value);
  }
  return fill(element, content);
}

function write(element, text) {
  const shown = readable(text);
  if (element.textContent !== shown) {
    element.textContent = shown;
  }
}

function definitions(list, pairs) {
  list.replaceChildren(...pairs.map(([name, value]) => make("div", "", make("dt", "", name), make("dd", "", value))));
  return list;
}

// A pane that scrolls shows a hint, and can get the keyboard focus while it scrolls.
const directions = [
  ["↑ above", (pane) => pane.scrollTop],
  ["↓ below", (pane) => pane.scrollHeight - pane.clientHeight - pane.scrollTop],
  ["← to the left", (pane) => pane.scrollLeft],
  ["→ to the right", (pane) => pane.scrollWidth - pane.clientWidth - pane.scrollLeft],
];
const scrollUpdates = [];

function scrollsSideways(pane) {
  return pane.scrollWidth > pane.clientWidth + 1 && getComputedStyle(pane).overflowX !== "hidden";
}

function showsScrolling(pane, hint) {
  const isStop = pane.hasAttribute("tabindex");
  function update() {
    const sideways = scrollsSideways(pane);
    const more = directions.filter(([, left], index) => (index < 2 || sideways) && left(pane) > 1).map(([where]) => where);
    hint.hidden = !more.length;
    write(hint, more.length ? `Scrolls: more ${more.join(", ")}` : "");
    if (!isStop) {
      // Keep the focused pane focusable, because removing the attribute would take its focus away.
      if (more.length || document.activeElement === pane) {
        pane.tabIndex = 0;
      } else {
        pane.removeAttribute("tabindex");
      }
    }
  }
  pane.addEventListener("scroll", update, { passive: true });
  new ResizeObserver(update).observe(pane);
  scrollUpdates.push(update);
  update();
}

function updateScrolling() {
  scrollUpdates.forEach((update) => update());
}

// Poll the server for changes while the page is visible. Returns a function that polls immediately.
function follow(live, take) {
  const status = byId("connection");
  let seen = live.version;
  let timer = 0;
  let asking = null;
  async function ask() {
    const mine = new AbortController();
    asking = mine;
    try {
      if (!document.hidden) {
        const address = new URL(live.url, document.baseURI);
        address.searchParams.set("seen", seen);
        const response = await fetch(address, { cache: "no-store", signal: mine.signal });
        if (response.status === 200) {
          const fresh = await response.json();
          seen = fresh.live.version;
          take(fresh);
        } else if (response.status !== 204) {
          throw new Error(String(response.status));
        }
        write(status, "live");
      }
    } catch {
      if (!mine.signal.aborted) {
        write(status, "not connected: this page may be out of date");
        timer = setTimeout(ask, Math.max(live.every, 1000));
        return;
      }
    }
    if (!mine.signal.aborted) {
      timer = setTimeout(ask, document.hidden ? Math.max(live.every, 250) : live.every);
    }
  }
  write(status, "live");
  timer = setTimeout(ask, live.every);
  return () => {
    asking?.abort();
    clearTimeout(timer);
    seen = "";
    ask();
  };
}
