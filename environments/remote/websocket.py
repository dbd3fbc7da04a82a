"""A blocking websocket client (RFC 6455) for one request at a time: text out, text in."""

import base64
import contextlib
import hashlib
import os
import struct

from environments.remote.connection import Address, ServiceError, describe
from scalinginter.errors import EnvironmentFailure

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3
TEXT, CLOSE, PING, PONG = 0x1, 0x8, 0x9, 0xA
FINAL, MASKED = 0x80, 0x80
TOO_BIG = 1009  # close code
MAX_HEAD = 1 << 16  # bytes of the handshake's answer


class WebSocket:
    """An open websocket. Not for two threads at once.

    Raises `EnvironmentFailure` when the service cannot be reached, `ServiceError` when it refuses
    the handshake.
    """

    def __init__(self, address: Address, path: str, connect_timeout_s: float) -> None:
        self._where = address.shown + path
        self._received = bytearray()
        try:
            self._socket = address.connect(connect_timeout_s)
        except OSError as error:
            raise EnvironmentFailure(
                f"{self._where}: {describe(error)}", timeout=isinstance(error, TimeoutError)
            ) from error
        try:
            self._shake_hands(address, path)
        except BaseException:
            self._socket.close()
            raise

    def exchange(self, text: str, timeout_s: float) -> str:
        """Send a text and return the next one that comes.

        Raises `EnvironmentFailure` when the connection ends or the answer is late; the websocket is
        closed then.
        """
        try:
            self._socket.settimeout(timeout_s)
            self._send(TEXT, text.encode())
            return self._next_text()
        except TimeoutError as error:
            self._socket.close()
            message = f"{self._where}: no answer within {timeout_s:g} s"
            raise EnvironmentFailure(message, timeout=True) from error
        except OSError as error:
            self._socket.close()
            raise EnvironmentFailure(f"{self._where}: {describe(error)}") from error

    def close(self) -> None:
        """Say goodbye and close."""
        with contextlib.suppress(OSError):
            self._send(CLOSE, struct.pack("!H", 1000))
        self._socket.close()

    def __del__(self) -> None:
        if hasattr(self, "_socket"):  # else it never connected
            self._socket.close()

    def _shake_hands(self, address: Address, path: str) -> None:
        key = base64.b64encode(os.urandom(16))
        headers = {
            "Host": f"{address.host}:{address.port}",
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Key": key.decode(),
            "Sec-WebSocket-Version": "13",
        } | {k: v for k, v in address.headers.items() if k == "Authorization"}
        lines = [f"GET {address.path}{path} HTTP/1.1"] + [f"{k}: {v}" for k, v in headers.items()]
        try:
            self._socket.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
            head = self._until(b"\r\n\r\n").decode(errors="replace")
        except OSError as error:
            raise EnvironmentFailure(f"{self._where}: {describe(error)}") from error
        status, _, rest = head.partition("\r\n")
        code = status.split(" ")[1] if status.startswith("HTTP/") and " " in status else "0"
        if code != "101":
            raise ServiceError(int(code) if code.isdecimal() else 0, f"no websocket: {status}")
        accepted = base64.b64encode(hashlib.sha1(key + GUID).digest()).decode()
        if accepted not in rest:
            raise EnvironmentFailure(f"{self._where}: this is not a websocket server")

    def _send(self, opcode: int, payload: bytes) -> None:
        """Send one frame, masked as a client must."""
        size = len(payload)
        if size < 126:
            head = struct.pack("!BB", FINAL | opcode, MASKED | size)
        elif size < 1 << 16:
            head = struct.pack("!BBH", FINAL | opcode, MASKED | 126, size)
        else:
            head = struct.pack("!BBQ", FINAL | opcode, MASKED | 127, size)
        mask = os.urandom(4)
        self._socket.sendall(head + mask + _masked(payload, mask))

    def _next_text(self) -> str:
        parts: list[bytes] = []
        while True:
            final, opcode, payload = self._frame()
            if opcode == PING:
                self._send(PONG, payload)
            elif opcode == CLOSE:
                raise ConnectionError(_goodbye(payload))
            elif opcode != PONG:  # text, or the continuation of one
                parts.append(payload)
                if final:
                    return b"".join(parts).decode()

    def _frame(self) -> tuple[bool, int, bytes]:
        first, second = self._exactly(2)
        size = second & 0x7F
        if size == 126:
            (size,) = struct.unpack("!H", self._exactly(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", self._exactly(8))
        return bool(first & FINAL), first & 0x0F, self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        while len(self._received) < size:
            self._receive()
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken

    def _until(self, end: bytes) -> bytes:
        while end not in self._received:
            if len(self._received) > MAX_HEAD:
                raise ConnectionError("the answer to the handshake does not end")
            self._receive()
        return self._exactly(self._received.index(end) + len(end))

    def _receive(self) -> None:
        chunk = self._socket.recv(1 << 16)
        if not chunk:
            raise ConnectionResetError
        self._received += chunk


def _masked(payload: bytes, mask: bytes) -> bytes:
    """XOR with the mask, in one operation on big integers: a loop over bytes is slow in Python."""
    size = len(payload)
    key = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(payload) ^ int.from_bytes(key)).to_bytes(size)


def _goodbye(payload: bytes) -> str:
    if len(payload) < 2:
        return "the service closed the websocket"
    (code,) = struct.unpack("!H", payload[:2])
    reason = payload[2:].decode(errors="replace")
    if code == TOO_BIG:
        return f"the message was too large for the service: {reason}"
    return f"the service closed the websocket ({code} {reason})"
