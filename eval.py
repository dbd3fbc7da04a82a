"""Evaluate a policy: `python eval.py --checkpoint runs/x --horizon 10,20,40`."""

import signal
import sys

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until `main` listens: no traceback of imports
    from scalinginter.cli.main import main

    sys.exit(main(["eval", *sys.argv[1:]]))
