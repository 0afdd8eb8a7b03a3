"""`python -m ngu` is the command `ngu`."""

import sys

from ngu.cli import main

sys.exit(main())
