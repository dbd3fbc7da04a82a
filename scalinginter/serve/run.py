"""Run a server until a signal stops it."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path

from aiohttp import web

from scalinginter.errors import UserError
from scalinginter.serve.service import EnvService

SHUTDOWN_TIMEOUT_S = 2.0  # requests in progress may finish


async def serve_until_stopped(
    app: web.Application,
    host: str,
    port: int,
    *,
    port_file: Path | None,
    announce: Callable[[str], None],
    service: EnvService,
) -> None:
    """Listen, say where, and stop on SIGINT or SIGTERM.

    Args:
        port: 0 takes a free one.
        port_file: gets the port's number once the server listens; it is removed at the end.
        announce: is given the url.
        service: what the application serves: its idle sessions are closed while it runs, all of it
            at the end.

    Raises `UserError` if the address cannot be listened on.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_TIMEOUT_S)
    await runner.setup()
    reaper = asyncio.create_task(service.reap_for_ever())
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise UserError(
                f"cannot listen on {host}:{port}: {error.strerror or error}; "
                "choose another --host or --port (0: a free one)"
            ) from None
        port = runner.addresses[0][1]
        if port_file is not None:
            _write_whole(port_file, f"{port}\n")
        announce(f"http://{f'[{host}]' if ':' in host else host}:{port}")
        await stop.wait()
    finally:
        reaper.cancel()
        await service.aclose()  # first: then no request has anything left to wait for
        await runner.cleanup()
        if port_file is not None:
            port_file.unlink(missing_ok=True)
        with contextlib.suppress(asyncio.CancelledError):
            await reaper


def _write_whole(path: Path, text: str) -> None:
    """Whoever waits for the file finds all of it."""
    aside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    aside.write_text(text)
    aside.replace(path)
