// Requests that change something: JSON to the server of the page, and its answer or the reason why there is none.

async function send(action, body) {
  try {
    const response = await fetch(action, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
    });
    if (response.status === 200) {
      return await response.json();
    }
    return { error: `The server of this page answered: ${await response.text()}` };
  } catch {
    return { error: "The server of this page does not answer. Is its command still running?" };
  }
}
