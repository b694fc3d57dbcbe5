// Requests that change something: JSON to the page's server, and its answer or an error text.

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
    return { error: `This page's server answered: ${await response.text()}` };
  } catch {
    return { error: "This page's server does not answer. Is its command still running?" };
  }
}

// Keep the source text of numbers that JavaScript cannot represent, if the browser supports it.
function exactly(name, value, { source } = {}) {
  return typeof value === "number" && source !== undefined && String(value) !== source && JSON.rawJSON ? JSON.rawJSON(source) : value;
}
