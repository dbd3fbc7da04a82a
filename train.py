"""Train an agent: `python train.py --schedule schedules/textcraft/scaled.yaml`."""

import signal
import sys

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until `main` listens: no traceback of imports
    from scalinginter.cli.main import main

    sys.exit(main(["train", *sys.argv[1:]]))
