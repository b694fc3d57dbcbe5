// A host for one MCP App: the frame with its document, and the messages that pass between the two.

const APP_PROTOCOL = "2026-01-26";
const MAX_APP_HEIGHT = 4000;

// The app shares no origin with this page, and gets no more than a host must give it.
function appFrame(shown, url) {
  const frame = make("iframe", "app");
  frame.title = readable(`App of ${shown.tool}`);
  frame.setAttribute("sandbox", "allow-scripts");
  frame.src = url;
  const asked = make("p", "quiet", "");
  const post = (message) => frame.contentWindow?.postMessage({ jsonrpc: "2.0", ...message }, "*");
  const theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const requests = {
    "ui/initialize": () => ({
      protocolVersion: APP_PROTOCOL,
      hostInfo: { name: "roundtrip dev", version: "1" },
      hostCapabilities: { serverTools: {}, openLinks: {}, updateModelContext: {} },
      hostContext: { theme, displayMode: "inline" },
    }),
    "ui/open-link": ({ url }) => {
      // Only the developer opens a link, because the app could open any.
      asked.replaceChildren("The app asks to open ", /^https?:/i.test(url) ? outwardLink(url, url) : make("code", "", url));
      return {};
    },
    "ui/update-model-context": ({ content }) => {
      asked.replaceChildren("The app tells the model: ", readable((content ?? []).map((block) => block.text ?? "").join(" ")));
      return {};
    },
    "tools/call": async ({ name, arguments: given }) => {
      const said = await send("app", { call: shown.id, tool: name, arguments: given ?? {} });
      return said.error === undefined ? said : Promise.reject(said.error);
    },
    ping: () => ({}),
  };
  const notifications = {
    "ui/notifications/initialized": () => {
      post({ method: "ui/notifications/tool-input", params: { arguments: JSON.parse(shown.arguments) } });
      post({ method: "ui/notifications/tool-result", params: shown.app });
    },
    "ui/notifications/size-changed": ({ height }) => {
      frame.style.height = `${Math.min(Number(height) || 0, MAX_APP_HEIGHT)}px`;
    },
  };
  const listening = new AbortController();
  addEventListener("message", async ({ source, data: message }) => {
    if (!frame.isConnected) {
      listening.abort();
    } else if (source === frame.contentWindow && message?.jsonrpc === "2.0" && Object.hasOwn(message, "method")) {
      const { id, method, params = {} } = message;
      if (id === undefined) {
        Object.hasOwn(notifications, method) && notifications[method](params);
        return;
      }
      try {
        post({ id, result: await (Object.hasOwn(requests, method) ? requests[method](params) : Promise.reject("unknown method")) });
      } catch (error) {
        post({ id, error: { code: -32000, message: String(error) } });
      }
    }
  }, { signal: listening.signal });
  return make("div", "", frame, asked);
}
