# SPDX-License-Identifier: Apache-2.0
"""Write to a storage service while holding a lock."""

import sys
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import netcraq


class Storage(BaseHTTPRequestHandler):
    """Refuses the write of a writer that had the lock before the newest one."""

    lock = threading.Lock()
    newest = 0

    def do_POST(self) -> None:
        """Accept a write to /TOKEN."""
        token = int(self.path.removeprefix("/"))
        with Storage.lock:
            stale = token < Storage.newest
            Storage.newest = max(token, Storage.newest)
        self.send_response(409 if stale else 200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing, because the writers print the storage's answers."""


def write(name: str, storage: str) -> None:
    """Write until the lock is lost."""
    # If this process is killed, the next one gets the lock after the TTL.
    with netcraq.connect() as client, client.lock("lock-python", ttl=5) as lock:
        request = urllib.request.Request(f"http://{storage}/{lock.token}", method="POST")
        while not lock.lost.wait(0.2):
            with urllib.request.urlopen(request) as answer:
                print(f"{name}: token {lock.token}: {answer.status}", flush=True)


if len(sys.argv) != 3:
    sys.exit("usage: lock.py storage|WRITER HOST:PORT")
if sys.argv[1] == "storage":
    host, port = sys.argv[2].split(":")
    ThreadingHTTPServer((host, int(port)), Storage).serve_forever()
write(sys.argv[1], sys.argv[2])
