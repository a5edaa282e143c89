# SPDX-License-Identifier: Apache-2.0
"""testpod's programs basics, hold, follow and spy, with the Python libraries instead of Go's."""

import json
import os
import sys
import threading
import time

from netcraq import node, streams


def say(**event: object) -> None:
    """Print an event."""
    print(json.dumps(event), flush=True)


def basics(client: node.Client, key: str, other: str) -> None:
    """Put, get and watch a key, and try to read another namespace's key."""
    with client.watch([key]) as watch:
        last = ""
        for i in range(5):
            last = f"value {i}"
            client.put(key, last)
        got = client.get(key)
        events, overtaken, version = 0, 0, ""
        while version != got.version:
            event = watch.next(30)
            events, overtaken, version = events + 1, overtaken + event.overtaken, event.version
    refused = []
    for call in (
        lambda: client.get(key, namespace=other),
        lambda: client.put(key, "forged", namespace=other),
        lambda: client.lock(key, namespace=other, wait=0),
    ):
        try:
            call()
            refused.append("it was done")
        except node.NodeError as error:
            refused.append(f"{error.code}: {error}")
    say(put=last, got=got.text, events=events, overtaken=overtaken, refused=refused)


def hold(client: node.Client, name: str, ttl: str, then: str) -> None:
    """Acquire a lock. Hold it until this process is killed, or release it."""
    say(waiting=True, pid=os.getpid())
    lock = client.lock(name, ttl=float(ttl), wait=120)
    say(token=str(lock.token), at=time.time())
    if then == "keep":
        threading.Event().wait()
    lock.release()


def follow(client: node.Client, stream: str, prefix: str, last: str, keys: str) -> None:
    """Follow the commits of the keys that begin with prefix by push, until the given number of keys
    have the value last.
    """
    client.open_stream(stream, {"objectBytes": 4096, "source": {"keys": {"prefix": prefix}}})
    records, done = 0, set()
    with streams.read(stream) as reader:
        say(following=stream, pid=os.getpid())
        while len(done) < int(keys):
            for _, record in reader.next(120):
                event = json.loads(bytes(record.data))
                records += 1
                if event.get("value") == last:
                    done.add(event["key"])
    say(records=records, keys=sorted(done))


def spy(client: node.Client, namespace: str, stream: str) -> None:
    """Print what this pod receives of another namespace's stream, by push and by pull."""
    said = {}
    for way in ("push", "pull"):
        try:
            with streams.read(stream, namespace=namespace, pull=way == "pull") as reader:
                reader.next(30)
            said[way] = "it was had"
        except node.NodeError as error:
            said[way] = f"{error.code}: {error}"
    say(**said)


if __name__ == "__main__":
    with node.connect() as connected:
        {"basics": basics, "hold": hold, "follow": follow, "spy": spy}[sys.argv[1]](connected, *sys.argv[2:])
