"""`roundtrip serve`: a server over HTTP, with one process or several, or over stdio for the host that starts it."""

from typing import Final

from roundtrip.cli.command import Command
from roundtrip.cli.parsing import OptionsAnywhere, add_settings, add_target

_DESCRIPTION: Final = """\
Serve a server over Streamable HTTP, with one process or several. Several processes share one port, so they
must share a key (ROUNDTRIP_KEYS, ROUNDTRIP_KEY_FILE; see `roundtrip keys`), and a ledger if tools run exactly once:
otherwise they do not start. With --stdio, serve the host that starts this command."""

_EPILOG: Final = """\
settings:
  Each flag but --config, --folder, --reload and --stdio is also a variable of the environment, ROUNDTRIP_PORT for
  --port, and a key in the [serve] table of roundtrip.toml or of the --config file. Flags win over variables, and
  those over the file. There, flags that may be repeated are allowed_hosts and allowed_origins: a list in the file,
  separated by commas in a variable.

  While you develop (--reload): a change of a Python file in this folder, or in the folder of the server's file,
  replaces the process. If the changed code fails, the code before it serves on. Calls of 2026-07-28 go on: if
  neither ROUNDTRIP_KEYS nor ROUNDTRIP_KEY_FILE is set, the processes get one key, which is not written to disk.
  Sessions of older clients end. It needs HTTP: a host holds the pipes of a process that it starts, and its session
  ends with the process.

  One response or a stream (--json-response): `auto` answers a request of 2026-07-28 with one JSON body, which costs
  less, and which becomes a stream with the first message, or after 15 seconds. `always` drops progress and log
  messages, and does not notice clients that leave. A server of the SDK's own class sends nothing of a JSON body
  before it is complete: if a proxy closes silent responses before your tools finish, use `never`.

health:
  /health/live   200 as soon as the process serves
  /health/ready  200 if it accepts requests; 503 while it starts or stops, or while tools that run exactly once
                 cannot reach the ledger

signals:
  SIGTERM  report not ready for --drain seconds while still serving, finish running requests, and exit with 0
  SIGINT   finish running requests; a second one aborts them
  SIGHUP   replace the workers one after another, with code and keys as they are now (several workers only)

exit codes:
  0  stopped by a signal
  1  running requests were aborted
  2  not started; standard error has the reason"""


_FLAGS: Final = {
    "--reload": "replace the process when Python files of the project change; see below",
    "--stdio": "serve on standard input and output, for a host that starts this command",
    "--folder FOLDER": "change to this folder first; hosts start commands elsewhere",
    "--config FILE": "settings; default: roundtrip.toml, if there is one",
    "--host HOST": "the address to listen on; default: 127.0.0.1",
    "--port N": "the port to listen on, 0 for one that is free; default: 8000",
    "--workers N": "processes that serve; default: 1",
    "--path PATH": "the path of the MCP endpoint; default: /mcp",
    "--sessions": "keep sessions for clients on 2025-11-25 and before, which can then be asked; one worker only; "
    "default: yes with one worker, no with several",
    "--json-response WHEN": "auto, always or never; see below; default: auto",
    "--allowed-host NAME ...": "accept requests to this name (Host), and from its pages (Origin); may be repeated; "
    "'*' for any; loopback names are always accepted on a loopback address; default: any name on other addresses, "
    "with a warning",
    "--allowed-origin ORIGIN ...": "accept requests from pages of this origin, such as https://app.example.com; may be "
    "repeated; '*' for any; with this flag every Origin is checked, even with --allowed-host '*'",
    "--show-errors": "send clients the texts of uncaught exceptions, unless the server decides itself "
    "(mask_error_details=); default: no",
    "--limit-connections N": "connections of each worker at a time; beyond it, a new one closes an idle one, or gets "
    "503 if none is idle, except for health checks; default: 1000, or as many as open files allow",
    "--max-body BYTES": "the size limit of a request; default: 4194304",
    "--timeout-request SECONDS": "the time limit for a client to send a whole request; default: 30",
    "--drain SECONDS": "the time to go on serving after SIGTERM while not ready; default: 1",
    "--timeout-graceful-shutdown SECONDS": "the time limit for running requests to finish after that; default: 30",
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
