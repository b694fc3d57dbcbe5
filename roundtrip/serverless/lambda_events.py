"""Conversion of AWS Lambda HTTP events to ASGI requests, and of ASGI responses to Lambda's format.

Function URLs and API Gateway HTTP APIs send events in payload format 2.0.
"""

import base64
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

from starlette.types import Message, Scope

from roundtrip.untrusted import mapping_of

_FORMAT: Final = "2.0"
_NO_STAGE: Final = "$default"
_HTTPS_PORT: Final = 443
_PORT: Final = re.compile(r"[0-9]{1,5}")

_REJECTED_1_0: Final = (
    "the event must have payload format 2.0, got 1.0. In an HTTP API, set the integration's PayloadFormatVersion to "
    "2.0. A REST API sends only format 1.0: use an HTTP API or a function URL, or Mangum(asgi_app(server))"
)
_REJECTED_BALANCER: Final = (
    "the event must have payload format 2.0, got a load balancer's event: use a function URL or an HTTP API, or "
    "Mangum(asgi_app(server))"
)
_REJECTED: Final = (
    "the event must be an HTTP request in payload format 2.0, as function URLs and API Gateway HTTP APIs send it. "
    "Connect one of these to the function; for other triggers, such as a schedule, use another function"
)


def scope_of(event: Mapping[str, Any], context: object) -> Scope:
    """Convert an event to an ASGI scope.

    Raises:
        ValueError: The event has another format; the message explains how to configure the trigger.
    """
    if (reason := _reason_to_reject(event)) is not None:
        raise ValueError(reason)
    request: Mapping[str, Any] = event["requestContext"]
    raw_headers: Mapping[str, Any] = event.get("headers") or {}
    headers = {name.lower(): str(value) for name, value in raw_headers.items()}
    if event.get("cookies"):
        headers["cookie"] = "; ".join(event["cookies"])
    path: str = event["rawPath"] or "/"
    stage: str = request.get("stage", _NO_STAGE)
    # With a custom domain, the path has no stage.
    root = f"/{stage}" if stage != _NO_STAGE and path.startswith(f"/{stage}/") else ""
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request["http"]["method"],
        "scheme": headers.get("x-forwarded-proto", "https"),
        "path": unquote(path),
        "raw_path": _bytes(path),
        "root_path": root,
        "query_string": _bytes(event.get("rawQueryString") or ""),
        "headers": [(_bytes(name), _bytes(value)) for name, value in headers.items()],
        "client": (request["http"]["sourceIp"], 0),
        "server": (request.get("domainName", ""), _port(headers.get("x-forwarded-port", ""))),
        # Mangum uses the same names, so code written for Mangum finds the event and the context.
        "aws.event": event,
        "aws.context": context,
    }


def body_of(event: Mapping[str, Any]) -> bytes:
    """Return an event's body."""
    body = event.get("body") or ""
    return base64.b64decode(body) if event.get("isBase64Encoded") else _bytes(body)


def _bytes(text: str) -> bytes:
    # Without `surrogatepass`, a client's lone surrogate would crash the function with an error that quotes the client's
    # text.
    return text.encode("utf-8", "surrogatepass")


def _port(text: str) -> int:
    return int(text) if _PORT.fullmatch(text) else _HTTPS_PORT


def _reason_to_reject(event: object) -> str | None:
    members = mapping_of(event)
    request = mapping_of(members.get("requestContext"))
    if "elb" in request:
        return _REJECTED_BALANCER
    if request and "httpMethod" in members:
        return _REJECTED_1_0
    return None if members.get("version") == _FORMAT and "http" in request else _REJECTED


class CollectedResponse:
    """ASGI response that is collected and then returned to Lambda."""

    def __init__(self) -> None:
        self.is_complete = False
        self._status = 0
        self._headers: dict[str, str] = {}
        self._cookies: list[str] = []
        self._body: list[bytes] = []

    def add(self, message: Message) -> None:
        """Add a message from the application."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            for name, value in message.get("headers", ()):
                self._add(name.decode("latin-1").lower(), value.decode("latin-1"))
        elif message["type"] == "http.response.body":
            self._body.append(message.get("body", b""))
            self.is_complete = not message.get("more_body", False)

    def to_lambda(self) -> dict[str, Any]:
        """Return the response in Lambda's format."""
        body = b"".join(self._body)
        try:
            text, is_encoded = body.decode(), False
        except UnicodeDecodeError:
            text, is_encoded = base64.b64encode(body).decode(), True
        return {
            "statusCode": self._status,
            "headers": self._headers,
            "cookies": self._cookies,
            "body": text,
            "isBase64Encoded": is_encoded,
        }

    def _add(self, name: str, value: str) -> None:
        if name == "set-cookie":
            self._cookies.append(value)
        else:
            self._headers[name] = f"{self._headers[name]},{value}" if name in self._headers else value
