"""Evaluate a policy: `python eval.py --checkpoint runs/x --horizon 10,20,40`."""

import sys

from scalinginter.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["eval", *sys.argv[1:]]))
