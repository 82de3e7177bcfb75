"""What a fork of vLLM's server lets go of."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

pytestmark = pytest.mark.long

LEAVE = """
import os, socket
from engine_images.entrypoint.server.forked import leave_sockets

listener, (ours, theirs), (source, sink) = socket.create_server(("127.0.0.1", 0)), socket.socketpair(), os.pipe()
port = listener.getsockname()[1]
leave_sockets()
socket.create_server(("127.0.0.1", port)).close()
assert os.read(ours.fileno(), 1) == b""
os.write(sink, b"x")
assert os.read(source, 1) == b"x"
listener.close()
print("still heard", flush=True)
"""


def test_the_servers_sockets_are_left_and_its_pipes_and_its_log_are_not() -> None:
    log, heard = socket.socketpair()
    with log, heard:
        done = subprocess.run([sys.executable, "-c", LEAVE], stdout=log, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert heard.recv(100) == b"still heard\n"
