"use strict";
// Where the hosts find the modules of ext-apps and of the client.
document.currentScript.after(Object.assign(document.createElement("script"), {
  type: "importmap",
  textContent: JSON.stringify({"imports": {
    "@modelcontextprotocol/ext-apps/app-bridge": "/modules/@modelcontextprotocol/ext-apps/dist/src/app-bridge.js",
    "@modelcontextprotocol/client": "/modules/@modelcontextprotocol/client/dist/index.mjs",
    "@modelcontextprotocol/client/_shims": "/modules/@modelcontextprotocol/client/dist/shimsBrowser.mjs",
    "@modelcontextprotocol/core": "/modules/@modelcontextprotocol/core/dist/index.mjs",
    "@modelcontextprotocol/core/internal": "/modules/@modelcontextprotocol/core/dist/internal.mjs",
    "zod/v4": "/modules/zod/v4/index.js",
    "ajv/dist/2020.js": "data:text/javascript,export default class {}",
    "eventsource": "/modules/eventsource/dist/index.js",
    "eventsource-parser": "/modules/eventsource-parser/dist/index.js",
    "eventsource-parser/stream": "/modules/eventsource-parser/dist/stream.js",
    "pkce-challenge": "/modules/pkce-challenge/dist/index.browser.js",
    "jose": "data:text/javascript,"
  }}),
}));
