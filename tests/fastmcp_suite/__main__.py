"""`python -m tests.fastmcp_suite`: run FastMCP's own tests with `install`, and hold the failures against the list."""

import sys

from tests.fastmcp_suite.suite import DIFFERENCES, FastMcpSuite
from tests.sdk.suite import main

sys.exit(main(FastMcpSuite, prog="python -m tests.fastmcp_suite", listed=DIFFERENCES))
