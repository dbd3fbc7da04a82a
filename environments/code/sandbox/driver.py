"""Runs inside the sandbox: an interpreter that keeps its variables between calls.

Reads a line of JSON per call from stdin, `{"code": ..., "end": ...}`, executes the code, and prints
`end` on a line of its own. Code can print that line itself: then its own output is cut there.
"""

import ast
import json
import os
import sys
import traceback


def run(code: str, names: dict) -> None:
    """Execute `code`; print the value of a last expression; print what is raised."""
    try:
        tree = ast.parse(code, "<cell>")
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = ast.Expression(tree.body[-1].value)
            tree.body.pop()
        exec(compile(tree, "<cell>", "exec"), names)  # noqa: S102 (this is the sandbox)
        if last is not None:
            value = eval(compile(last, "<cell>", "eval"), names)  # noqa: S307
            if value is not None:
                print(repr(value))
    except SystemExit:
        pass
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        mine = [frame for frame in frames if frame.filename == "<cell>"]
        where = f" (line {mine[-1].lineno})" if mine else ""
        print("".join(traceback.format_exception_only(type(error), error)).strip() + where)


def main() -> None:
    """Answer calls until the end of the input, which model code cannot read."""
    calls = os.fdopen(os.dup(0), "r")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    names = {"__name__": "__main__"}
    me = os.getpid()
    while line := calls.readline():
        call = json.loads(line)
        run(call["code"], names)
        if os.getpid() != me:
            os._exit(0)  # a child that the code forked and that came out of it
        sys.stdout.flush()
        sys.stderr.flush()
        os.write(1, b"\n" + call["end"].encode() + b"\n")


if __name__ == "__main__":
    main()
