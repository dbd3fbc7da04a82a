"""Train an agent: `python train.py --schedule schedules/textcraft/scaled.yaml`."""

import sys

from scalinginter.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
