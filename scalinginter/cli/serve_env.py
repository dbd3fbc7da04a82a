"""`serve-env ID`: an environment as a service."""

import argparse
import asyncio
import os
from pathlib import Path
from typing import Any

from scalinginter.cli.options import add_environment, parameters
from scalinginter.env.registry import check_id
from scalinginter.errors import UserError

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add = parser.add_argument
    add_environment(parser)
    add("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    add("--port", type=int, default=0, help="0 (the default) takes a free one")
    add("--port-file", type=Path, metavar="FILE", help="write the port's number here")
    add("--token", help="what clients must send; better: the variable SCALINGINTER_ENV_TOKEN")
    add("--no-token", action="store_true", help="let everybody in who reaches the address")
    add("--max-sessions", type=int, default=256, metavar="N", help="episodes at once")
    add("--max-body-bytes", type=int, default=1 << 20, metavar="N", help="of one request")
    add("--lease-s", type=float, default=600.0, metavar="S", help="idle time that ends a session")
    add("--turn-timeout-s", type=float, default=30.0, metavar="S", help="of one step")
    add("--reset-timeout-s", type=float, default=120.0, metavar="S", help="of one reset")
    add("--workers", type=int, default=2, metavar="N", help="processes, where they are needed")
    add("--format", choices=("scalinginter", "agentgym"), default="scalinginter")
    add("--flavour", default="textcraft", help="agentgym: the server whose names to use")


def run(options: argparse.Namespace) -> int:
    """Serve until a signal."""
    params = parameters(options.param, "--param")
    check_id(options.id)
    token = _token(options)
    _check_numbers(options)
    if options.port_file is not None and not options.port_file.parent.is_dir():
        raise UserError(f"--port-file {options.port_file}: there is no such folder")
    _serve(options, params, token)
    return 0


def _token(options: argparse.Namespace) -> str | None:
    from scalinginter.env.wire import TOKEN_VARIABLE

    token = options.token or os.environ.get(TOKEN_VARIABLE)
    if options.no_token:
        return None
    if not token and options.host not in LOOPBACK:
        raise UserError(
            f"--host {options.host}: other machines could use this server without a token; "
            f"set {TOKEN_VARIABLE}, or pass --no-token if you mean it"
        )
    return token or None


def _check_numbers(options: argparse.Namespace) -> None:
    least = {"port": 0, "max_sessions": 1, "max_body_bytes": 256, "workers": 1}
    for name, minimum in least.items():
        if getattr(options, name) < minimum:
            raise UserError(
                f"{_flag(name)} must be at least {minimum}, got {getattr(options, name)}"
            )
    if options.port > 65535:
        raise UserError(f"--port must be at most 65535, got {options.port}")
    for name in ("lease_s", "turn_timeout_s", "reset_timeout_s"):
        if not 0 < getattr(options, name) < 1e9:
            raise UserError(f"{_flag(name)} must be above 0 seconds, got {getattr(options, name)}")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _serve(options: argparse.Namespace, params: dict[str, Any], token: str | None) -> None:
    from scalinginter.env.agentgym import flavour_named
    from scalinginter.serve import agentgym, http
    from scalinginter.serve.run import serve_until_stopped
    from scalinginter.serve.service import EnvService, ServedEnv
    from scalinginter.serve.sessions import Limits

    flavour = flavour_named(options.flavour)
    limits = Limits(options.max_sessions, options.max_body_bytes, options.lease_s)
    served = ServedEnv(options.id, params, options.reset_timeout_s)
    pool = served.pool(options.turn_timeout_s, options.workers)
    service = EnvService(served, pool, limits)
    if options.format == "agentgym":
        app = agentgym.make_app(service, token, flavour)
    else:
        app = http.make_app(service, token)

    def announce(url: str) -> None:
        counts = ", ".join(f"{len(listed)} {split}" for split, listed in served.tasks.items())
        print(f"Serving {options.id} ({counts} tasks) at {url}", flush=True)
        print("Stop with Ctrl-C.", flush=True)

    asyncio.run(
        serve_until_stopped(
            app,
            options.host,
            options.port,
            port_file=options.port_file,
            announce=announce,
            service=service,
        )
    )
