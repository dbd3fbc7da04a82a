"""The command line. It parses and validates before anything heavy is imported."""

import argparse
import errno
import importlib
import os
import signal
import sys
from collections.abc import Sequence

from scalinginter.cli.streams import make_patient
from scalinginter.errors import RunFailedError, UserError, tell

# command: (module with add_arguments and run, one line of help)
COMMANDS = {
    "train": ("scalinginter.cli.train", "train an agent, or compare several schedules"),
    "eval": ("scalinginter.cli.evaluate", "evaluate a policy at one or several horizons"),
    "report": ("scalinginter.cli.report", "write the report of a comparison again"),
    "envs": ("scalinginter.cli.envs", "list the environments"),
    "check-env": ("scalinginter.cli.check_env", "check that an environment keeps the contract"),
    "describe-env": ("scalinginter.cli.describe_env", "measure an environment for its card"),
    "prepare-env": ("scalinginter.cli.prepare_env", "generate an environment's games ahead"),
    "serve-env": ("scalinginter.cli.serve_env", "serve an environment over HTTP and websocket"),
    "serve-retriever": ("scalinginter.cli.serve_retriever", "serve a corpus as Search-R1 does"),
    "fetch-model": ("scalinginter.cli.fetch_model", "fetch and convert a model that needs no hub"),
    "merge-adapter": (
        "scalinginter.cli.merge_adapter",
        "write a LoRA run's policy as a whole model",
    ),
    "mlflow-sync": ("scalinginter.cli.mlflow_sync", "bring run folders into MLflow"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0, 1 (a run failed), 2 (bad input), 130 (Ctrl-C)."""
    # One thread a process: two are several times slower for small models on shared cores.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    arguments = list(sys.argv[1:] if argv is None else argv)
    make_patient()
    try:
        if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:  # train.py: see there
            signal.signal(signal.SIGINT, signal.default_int_handler)
        options = _parser(arguments).parse_args(arguments)
        return importlib.import_module(COMMANDS[options.command][0]).run(options)
    except UserError as error:
        tell(error)
        return 2
    except RunFailedError as error:
        tell(error)
        return error.exit_code
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        print(f"error: {str(error.filename)[:80]}...: {error.strerror}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nStopped; there was nothing to save.", file=sys.stderr)
        return 130


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """Build the parser; only the command that is asked for brings its arguments."""
    script = arguments[0] in ("train", "eval") and sys.argv[0].endswith(".py") if arguments else 0
    program = os.path.basename(sys.argv[0]) if script else "scalinginter"
    parser = argparse.ArgumentParser(
        prog=program,
        description="Train language-model agents while the interaction horizon grows.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for name, (module, help_text) in COMMANDS.items():
        sub = commands.add_parser(
            name,
            help=help_text,
            description=f"{help_text[0].upper()}{help_text[1:]}.",
            prog=program if script else f"{program} {name}",
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name in arguments[:1]:
            importlib.import_module(module).add_arguments(sub)
    return parser


if __name__ == "__main__":
    sys.exit(main())
