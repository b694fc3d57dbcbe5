"""`roundtrip worker`: the tasks of a server, in processes that serve no requests."""

from typing import Final

from roundtrip.cli.command import Command
from roundtrip.cli.parsing import OptionsAnywhere, add_settings, add_target

_DESCRIPTION: Final = """\
Run the tasks of a server, and serve no requests. Workers and servers share a ledger and keys (ROUNDTRIP_KEYS,
ROUNDTRIP_KEY_FILE; see `roundtrip keys`). Servers run tasks, too, unless they have Server(run_tasks=False) or
ROUNDTRIP_RUN_TASKS=0."""

_EPILOG: Final = """\
settings:
  Each flag is also a variable of the environment, ROUNDTRIP_CONCURRENCY for --concurrency, and a key in the [worker]
  table of roundtrip.toml or of the --config file. Flags win over variables, and those over the file.

signals:
  SIGTERM, SIGINT  claim no more tasks, let the running legs end for --timeout-graceful-shutdown seconds, give the
                   others up, so that another worker continues them behind their stored steps, and exit; a second
                   one does not wait
  SIGHUP           replace the processes one after another, with code and keys as they are now (several only)

exit codes:
  0  stopped by a signal
  1  running legs were given up
  2  not started; standard error has the reason"""

_FLAGS: Final = {
    "--config FILE": "settings; default: roundtrip.toml, if there is one",
    "--workers N": "processes; default: 1",
    "--concurrency N": "tasks that each process runs at once; tasks that wait do not count; default: 100",
    "--timeout-graceful-shutdown SECONDS": "the time limit for running legs to end after a signal; default: 10",
    "--timeout-start SECONDS": "the time limit for a process to start; default: 60",
    "--log-level LEVEL": "debug, info, warning or error; default: info",
}


def _configure(parser: OptionsAnywhere) -> None:
    add_target(parser)
    add_settings(parser, _FLAGS)


COMMAND = Command(_DESCRIPTION, _configure, _EPILOG)
