#!/usr/bin/env python3
"""Takes a lock with kazoo, again and again, and holds what nobody else may.

usage: kazoo_lock.py HOSTS LOCK INSIDE ROUNDS [PATTERN...]

Each time that it has the lock it creates INSIDE, an ephemeral that must not be
there, and deletes it before it lets go. "ok round" is printed for each. With 0
rounds it takes the lock once, prints "ok locked" and keeps it until its input ends.
PATTERNs are kazoo's extra_lock_patterns.
"""
import sys
import time

from kazoo.client import KazooClient

hosts, path, inside, rounds, patterns = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), tuple(sys.argv[5:])
c = KazooClient(hosts=hosts, timeout=10.0)
c.start(timeout=20)
lock = c.Lock(path, "in Python", extra_lock_patterns=patterns)
for _ in range(rounds):
    with lock:
        c.create(inside, b"python", ephemeral=True)
        time.sleep(0.003)
        c.delete(inside)
    print("ok round", flush=True)
if rounds == 0:
    lock.acquire()
    print("ok locked", flush=True)
    sys.stdin.read()
    lock.release()
c.stop()
c.close()
