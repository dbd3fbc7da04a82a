"""`serve-retriever`: the corpus of `search`, or one of the user's, as a retrieval server."""

import argparse
import importlib

from scalinginter.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    worlds = importlib.import_module("environments.search.atlas").WORLDS
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    add("--port", type=int, default=0, help="0 (the default) takes a free one")
    corpus = parser.add_mutually_exclusive_group()
    corpus.add_argument("--world", choices=worlds, default="atlas", help="our corpus")
    corpus.add_argument("--documents", metavar="FILE", help="a corpus of yours (JSONL)")


def run(options: argparse.Namespace) -> int:
    """Serve until a signal."""
    if not 0 <= options.port <= 65535:
        raise UserError(f"--port must be from 0 (a free one) to 65535, got {options.port}")
    serve = importlib.import_module("environments.search.serve")
    serve.serve(serve.corpus(options.world, options.documents), options.host, options.port)
    return 0
