"""A way to a server that can be cut and mended, as a network can: it forwards a port of 127.0.0.1 to another."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Wire:
    """`port` leads to the port `target`, unless it is cut."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._ends: list[socket.socket] = []
        self._is_cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Whoever is connected is disconnected, and nobody can connect."""
        with self._lock:
            self._is_cut = True
            for end in self._ends:
                _disconnect(end)
            self._ends.clear()

    def mend(self) -> None:
        with self._lock:
            self._is_cut = False

    def close(self) -> None:
        self.cut()
        _disconnect(self._listener)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                self._connect(self._listener.accept()[0])

    def _connect(self, client: socket.socket) -> None:
        with self._lock:
            try:
                if self._is_cut:
                    raise ConnectionRefusedError
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                client.close()
                return
            self._ends += [client, server]
        threading.Thread(target=_forward, args=(client, server), daemon=True).start()


def _forward(client: socket.socket, server: socket.socket) -> None:
    """Forward in both directions until one side ends."""
    back = threading.Thread(target=_copy, args=(server, client), daemon=True)
    back.start()
    _copy(client, server)
    back.join()
    client.close()
    server.close()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while chunk := source.recv(65536):
            target.sendall(chunk)
    _disconnect(source)
    _disconnect(target)


def _disconnect(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
