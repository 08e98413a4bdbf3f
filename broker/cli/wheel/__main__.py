"""`python -m barnabas`, the same as the command."""

import sys

from barnabas import main

sys.exit(main())
