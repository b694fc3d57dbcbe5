"""`python -m tests.sdk`: run the SDK's own tests on roundtrip, and hold the failures against those that are listed."""

import sys

from tests.sdk.suite import main

sys.exit(main())
