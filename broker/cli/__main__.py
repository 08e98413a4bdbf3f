"""`python -m broker.cli` in a checkout, the same as the installed `barnabas` command."""

import sys

from broker.cli.main import main

sys.exit(main(sys.argv[1:]))
