"""`roundtrip worker`: run a server's tasks in processes that serve no requests."""

from typing import Final

from roundtrip.cli.command import Command
from roundtrip.cli.parsing import OptionsAnywhere, add_settings, add_target

_DESCRIPTION: Final = """\
Run a server's tasks without serving requests. Workers and servers share a ledger and keys (ROUNDTRIP_KEYS,
ROUNDTRIP_KEY_FILE; see `roundtrip keys`). Servers also run tasks, unless they have run_tasks=False or
ROUNDTRIP_RUN_TASKS=0."""

_EPILOG: Final = """\
settings:
  Each flag can also be set by an environment variable (ROUNDTRIP_CONCURRENCY for --concurrency), or by a key in the
  [worker] table of roundtrip.toml or of the --config file. Flags override variables, and variables override the file.

signals:
  SIGTERM, SIGINT  claim no more tasks, wait --timeout-graceful-shutdown seconds for running legs, and exit; another
                   worker continues unfinished legs after their last stored steps; a second signal does not wait
  SIGHUP           replace the processes one by one, which loads the current code and keys (several processes only)

exit codes:
  0  stopped by a signal
  1  running legs were given up
  2  not started; standard error has the reason"""

_FLAGS: Final = {
    "--config FILE": "read settings from this file; default: roundtrip.toml, if it exists",
    "--workers N": "number of processes; default: 1",
    "--concurrency N": "maximum number of tasks that a process runs at once, not counting waiting ones; default: 100",
    "--timeout-graceful-shutdown SECONDS": "the time limit for running legs to end after a signal; default: 10",
    "--timeout-start SECONDS": "the time limit for a process to start; default: 60",
    "--log-level LEVEL": "debug, info, warning or error; default: info",
}


def _configure(parser: OptionsAnywhere) -> None:
    add_target(parser)
    add_settings(parser, _FLAGS)


COMMAND = Command(_DESCRIPTION, _configure, _EPILOG)
