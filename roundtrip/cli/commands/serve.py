"""`roundtrip serve`: serve over HTTP with one or more processes, or over stdio."""

from typing import Final

from roundtrip.cli.command import Command
from roundtrip.cli.parsing import OptionsAnywhere, add_settings, add_target

_DESCRIPTION: Final = """\
Serve a server over Streamable HTTP, with one or more processes. Several processes share one port, so they need a common
key (ROUNDTRIP_KEYS, ROUNDTRIP_KEY_FILE; see `roundtrip keys`), and a common ledger if tools run exactly once. Without
them, the command does not start. With --stdio, serve the host that starts this command."""

_EPILOG: Final = """\
settings:
  All flags except --config, --folder, --reload and --stdio can also be set by an environment variable (ROUNDTRIP_PORT
  for --port), or by a key in the [serve] table of roundtrip.toml or of the --config file. Flags override variables, and
  variables override the file. There, the flags that may be repeated are named allowed_hosts and allowed_origins. Their
  values are a list in the file, and separated by commas in a variable.

  While you develop (--reload): if a Python file changes in this folder or in the server file's folder, the command
  replaces the process. If the new code fails, the old code keeps serving. Calls on 2026-07-28 continue: if neither
  ROUNDTRIP_KEYS nor ROUNDTRIP_KEY_FILE is set, the processes share a new key, which is not written to disk. Sessions of
  older clients end. --reload needs HTTP: a host holds the pipes of the process that it starts, so its session would end
  with the process.

  One response or a stream (--json-response): `auto` answers a request on 2026-07-28 with one JSON body, which costs
  less. The response becomes a stream with the first message, or after 15 seconds. `always` drops progress and log
  messages, and does not notice when a client disconnects. SDK servers send a JSON body only when it is complete: if a
  proxy closes silent responses before your tools finish, use `never`.

health:
  /health/live   200 as soon as the process serves
  /health/ready  200 if the process accepts requests; 503 while it starts or stops, or while tools that run exactly once
                 cannot reach the ledger

signals:
  SIGTERM  report not ready for --drain seconds while still serving, finish running requests, and exit with 0
  SIGINT   finish running requests; a second SIGINT aborts them
  SIGHUP   replace the workers one by one, which loads the current code and keys (several workers only)

exit codes:
  0  stopped by a signal
  1  running requests were aborted
  2  not started; standard error has the reason"""


_FLAGS: Final = {
    "--reload": "replace the process when the project's Python files change; see below",
    "--stdio": "serve on standard input and output, for a host that starts this command",
    "--folder FOLDER": "change to this folder first; hosts may start commands in another folder",
    "--config FILE": "read settings from this file; default: roundtrip.toml, if it exists",
    "--host HOST": "the address to listen on; default: 127.0.0.1",
    "--port N": "the port to listen on, 0 for a free port; default: 8000",
    "--workers N": "number of serving processes; default: 1",
    "--path PATH": "the path of the MCP endpoint; default: /mcp",
    "--sessions": "keep sessions, so that tools can ask clients on 2025-11-25 and before; several workers pass each "
    "request on to the worker that has its session; default: yes",
    "--json-response WHEN": "auto, always or never; see below; default: auto",
    "--allowed-host NAME ...": "accept requests to this name (Host), and from its pages (Origin); may be repeated; "
    "'*' for any name; loopback names are always accepted on a loopback address; default: any name on other addresses, "
    "with a warning",
    "--allowed-origin ORIGIN ...": "accept requests from pages of this origin, such as https://app.example.com; may be "
    "repeated; '*' for any origin; with this flag, every Origin is checked, even with --allowed-host '*'",
    "--show-errors": "send the texts of uncaught exceptions to clients, unless the server sets mask_error_details=; "
    "default: no",
    "--limit-connections N": "maximum number of open connections per worker; at the limit, a new connection replaces "
    "an idle one, and if none is idle, requests other than health checks get 503; default: 1000, or fewer if the limit "
    "of open files is lower",
    "--max-body BYTES": "the maximum request size in bytes; default: 4194304",
    "--timeout-request SECONDS": "the time limit for a client to send a complete request; default: 30",
    "--drain SECONDS": "how long to keep serving after SIGTERM, while /health/ready reports not ready; default: 1",
    "--timeout-graceful-shutdown SECONDS": "after --drain, the time limit for running requests to finish; default: 30",
    "--timeout-keep-alive SECONDS": "the time that an idle connection stays open; default: 75",
    "--timeout-start SECONDS": "the time limit for a worker to start; default: 60",
    "--access-log": "log every request; default: no",
    "--log-level LEVEL": "debug, info, warning or error; default: info",
}
SWITCHES: Final = ("reload", "stdio")


def _configure(parser: OptionsAnywhere) -> None:
    add_target(parser)
    add_settings(parser, _FLAGS, switches=SWITCHES)


COMMAND = Command(_DESCRIPTION, _configure, _EPILOG)
