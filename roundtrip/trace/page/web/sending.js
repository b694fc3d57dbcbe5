// Requests that change something: JSON to the server of the page, and its answer or the reason why there is none.

async function send(action, body) {
  try {
    const response = await fetch(action, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
    });
    if (response.status === 200) {
      return JSON.parse(await response.text(), exactly);
    }
    return { error: `The server of this page answered: ${await response.text()}` };
  } catch {
    return { error: "The server of this page does not answer. Is its command still running?" };
  }
}

// Numbers that JavaScript cannot represent stay as they are written, where the browser can keep them.
function exactly(name, value, { source } = {}) {
  return typeof value === "number" && source !== undefined && String(value) !== source && JSON.rawJSON ? JSON.rawJSON(source) : value;
}
