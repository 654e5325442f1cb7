#!/usr/bin/env python3
"""What programs do with kazoo, against the servers named as host:port,host:port.

usage: kazoo_suite.py HOSTS basics|recipes|ride [SECONDS]

basics   creates of every kind, versions, transactions, ACLs, watches, chroot
recipes  every recipe of kazoo, two clients at a time
ride     works until SECONDS have passed, while somebody kills servers: no ephemeral
         may go, no watch may be missed, no session may be reported lost

Each check that holds is printed as "ok NAME". The first that does not ends the
program with its traceback.
"""
import logging
import socket
import sys
import threading
import time

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (BadVersionError, NoAuthError, NodeExistsError, NoNodeError, NotEmptyError, RolledBackError)
from kazoo.protocol.states import EventType
from kazoo.retry import KazooRetry
from kazoo.recipe.cache import TreeCache
from kazoo.security import make_digest_acl, OPEN_ACL_UNSAFE

HOSTS = sys.argv[1]
logging.basicConfig(level=logging.CRITICAL)


def quickly():
    return KazooRetry(max_tries=-1, delay=0.05, max_delay=0.5)


def client(hosts=HOSTS, **kw):
    c = KazooClient(hosts=hosts, timeout=10.0, connection_retry=quickly(), **kw)
    c.start(timeout=20)
    return c


def vanish(c):
    """Ends a client without a word, as a process that dies."""
    c._stopped.set()
    try:
        c._connection._socket.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # the session has moved on already: the server has ended the connection


def until(what, f, limit=15.0):
    end = time.time() + limit
    while not f():
        if time.time() > end:
            raise AssertionError("not within %s s: %s" % (limit, what))
        time.sleep(0.01)


def raises(kind, f, *args, **kw):
    try:
        f(*args, **kw)
    except kind:
        return
    raise AssertionError("%s was not raised" % kind.__name__)


def eq(got, want):
    if got != want:
        raise AssertionError("got %r, want %r" % (got, want))


CHECKS = {"basics": [], "recipes": [], "ride": []}


def check(group):
    def deco(f):
        CHECKS[group].append(f)
        return f
    return deco


@check("basics")
def nodes():
    c = client()
    c.ensure_path("/kz/nodes")
    eq(c.create("/kz/nodes/a", b"1"), "/kz/nodes/a")
    data, stat = c.get("/kz/nodes/a")
    eq((data, stat.version, stat.data_length), (b"1", 0, 1))
    eq(c.set("/kz/nodes/a", b"2", version=0).version, 1)
    raises(BadVersionError, c.set, "/kz/nodes/a", b"3", version=0)
    raises(NodeExistsError, c.create, "/kz/nodes/a")
    raises(NoNodeError, c.get, "/kz/nodes/none")
    seq = [c.create("/kz/nodes/s-", sequence=True) for _ in range(3)]
    eq(seq, sorted(seq))
    path, stat = c.create("/kz/nodes/e", ephemeral=True, include_data=True)
    eq(stat.ephemeralOwner, c.client_id[0])
    raises(NotEmptyError, c.delete, "/kz/nodes")
    eq(c.create("/kz/deep/er/node", makepath=True), "/kz/deep/er/node")
    eq(sorted(c.get_children("/kz/nodes")), sorted(["a", "e"] + [s.rsplit("/", 1)[1] for s in seq]))
    big = b"x" * 900000
    c.set("/kz/nodes/a", big)
    eq(c.get("/kz/nodes/a")[0], big)
    eq(c.sync("/kz"), "/kz")
    assert c.server_version() >= (3, 8)
    c.stop()
    d = client()
    until("the ephemeral has gone with its session", lambda: d.exists("/kz/nodes/e") is None)
    d.delete("/kz", recursive=True)
    d.stop()


@check("basics")
def transactions():
    c = client()
    c.ensure_path("/kz/txn")
    t = c.transaction()
    t.create("/kz/txn/a", b"1")
    t.check("/kz/txn", version=0)
    t.set_data("/kz/txn/a", b"2")
    eq([type(r).__name__ for r in t.commit()][0], "str")
    t = c.transaction()
    t.create("/kz/txn/b")
    t.delete("/kz/txn/none")
    res = t.commit()
    assert isinstance(res[0], RolledBackError) and isinstance(res[1], NoNodeError), res
    eq(c.exists("/kz/txn/b"), None)
    c.delete("/kz/txn", recursive=True)
    c.stop()


@check("basics")
def acls():
    acl = make_digest_acl("user", "secret", all=True)
    c = client(auth_data=[("digest", "user:secret")])
    c.ensure_path("/kz")
    c.create("/kz/acl", b"mine", acl=[acl])
    eq(c.get("/kz/acl")[0], b"mine")
    d = client()
    d.sync("/kz/acl")
    raises(NoAuthError, d.get, "/kz/acl")
    d.add_auth("digest", "user:secret")
    eq(d.get("/kz/acl")[0], b"mine")
    eq(c.get_acls("/kz/acl")[0], [acl])
    c.set_acls("/kz/acl", OPEN_ACL_UNSAFE)
    c.delete("/kz/acl")
    c.stop()
    d.stop()


@check("basics")
def watches():
    c, d = client(), client()
    c.ensure_path("/kz/watch")
    seen = []
    eq(c.exists("/kz/watch/a", watch=seen.append), None)
    c.get_children("/kz/watch", watch=seen.append)
    d.create("/kz/watch/a")
    until("two events", lambda: len(seen) == 2)
    eq(sorted(e.type for e in seen), sorted([EventType.CREATED, EventType.CHILD]))
    values, kids = [], []
    c.DataWatch("/kz/watch/a", lambda data, stat: values.append(data))
    c.ChildrenWatch("/kz/watch", lambda names: kids.append(sorted(names)))
    for i in range(20):
        d.set("/kz/watch/a", b"%d" % i)
    until("the last value", lambda: values[-1] == b"19")
    d.create("/kz/watch/b")
    until("the new child", lambda: kids[-1] == ["a", "b"])
    d.delete("/kz/watch/a")
    until("the end of the node", lambda: values[-1] is None)
    c.delete("/kz/watch", recursive=True)
    c.stop()
    d.stop()


@check("basics")
def chroot():
    c = client()
    c.ensure_path("/kz/root")
    d = client(HOSTS + "/kz/root")
    eq(d.create("/a", b"1"), "/a")
    eq(d.create("/s-", sequence=True), "/s-0000000001")
    eq(c.get("/kz/root/a")[0], b"1")
    seen = []
    d.exists("/new", watch=seen.append)
    c.create("/kz/root/new")
    until("the event", lambda: seen)
    eq(seen[0].path, "/new")
    c.delete("/kz/root", recursive=True)
    c.stop()
    d.stop()


@check("basics")
def session_moves():
    """A session is resumed at another server, with its ephemerals and watches."""
    c = client(HOSTS)
    c.ensure_path("/kz/move")
    states = []
    c.add_listener(states.append)
    c.create("/kz/move/e", ephemeral=True)
    session = c.client_id
    for host in HOSTS.split(","):
        d = KazooClient(hosts=host, client_id=session, timeout=10.0, connection_retry=quickly())
        # The first one comes back for its session, so d may have lost it again by the
        # time start() would look.
        assert d.start_async().wait(20), "never connected to " + host
        eq(d.client_id[0], session[0])
        assert d.retry(d.exists, "/kz/move/e")
        vanish(d)
    assert KazooState.LOST not in states, states
    until("it is connected again", lambda: c.connected)
    c.retry(c.delete, "/kz/move", recursive=True)
    c.stop()


def pair():
    return client(), client()


@check("recipes")
def lock():
    c, d = pair()
    a, b = c.Lock("/kz/lock", "first"), d.Lock("/kz/lock", "second")
    assert a.acquire(timeout=10)
    eq(b.acquire(blocking=False), False)
    until("who did not wait has left", lambda: a.contenders() == ["first"])
    got = threading.Event()
    t = threading.Thread(target=lambda: b.acquire(timeout=20) and got.set(), daemon=True)
    t.start()
    until("two stand in line", lambda: len(a.contenders()) == 2)
    assert not got.is_set()
    a.release()
    until("the second has it", got.is_set)
    b.release()
    c.stop()
    d.stop()


@check("recipes")
def read_write_lock():
    c, d = pair()
    r1, r2, w = c.ReadLock("/kz/rw", "r1"), d.ReadLock("/kz/rw", "r2"), d.WriteLock("/kz/rw", "w")
    assert r1.acquire(timeout=10) and r2.acquire(timeout=10)
    eq(w.acquire(blocking=False), False)
    r1.release()
    r2.release()
    assert w.acquire(timeout=10)
    eq(r1.acquire(blocking=False), False)
    w.release()
    c.stop()
    d.stop()


@check("recipes")
def semaphore():
    c, d = pair()
    held = [c.Semaphore("/kz/sem", "h%d" % i, max_leases=2) for i in range(2)]
    third = d.Semaphore("/kz/sem", "third", max_leases=2)
    assert all(s.acquire(timeout=10) for s in held)
    eq(third.acquire(blocking=False), False)
    held[0].release()
    assert third.acquire(timeout=10)
    third.release()
    held[1].release()
    c.stop()
    d.stop()


@check("recipes")
def election():
    c, d = pair()
    order, first_runs, first_ends = [], threading.Event(), threading.Event()

    def lead(name):
        order.append(name)
        if name == "a":
            first_runs.set()
            first_ends.wait(20)

    ea, eb = c.Election("/kz/election", "a"), d.Election("/kz/election", "b")
    ta = threading.Thread(target=ea.run, args=(lead, "a"), daemon=True)
    ta.start()
    first_runs.wait(20)
    tb = threading.Thread(target=eb.run, args=(lead, "b"), daemon=True)
    tb.start()
    until("both are candidates", lambda: ea.contenders() == ["a", "b"])
    first_ends.set()
    tb.join(20)
    eq(order, ["a", "b"])
    c.stop()
    d.stop()


@check("recipes")
def barriers():
    c, d = pair()
    b = c.Barrier("/kz/barrier")
    b.create()
    d.sync("/kz/barrier")
    eq(d.Barrier("/kz/barrier").wait(0.3), False)
    passed = threading.Event()
    t = threading.Thread(target=lambda: d.Barrier("/kz/barrier").wait(20) and passed.set(), daemon=True)
    t.start()
    time.sleep(0.2)
    assert b.remove()
    until("the barrier is passed", passed.is_set)
    inside = []
    db = [x.DoubleBarrier("/kz/double", 2) for x in (c, d)]
    ts = [threading.Thread(target=lambda x=x: (x.enter(), inside.append(1), x.leave()), daemon=True) for x in db]
    ts[0].start()
    time.sleep(0.2)
    eq(inside, [])
    ts[1].start()
    for t in ts:
        t.join(20)
    eq(len(inside), 2)
    c.stop()
    d.stop()


@check("recipes")
def party_and_counter():
    c, d = pair()
    p, q = c.Party("/kz/party", "one"), d.Party("/kz/party", "two")
    p.join()
    q.join()
    until("two members", lambda: len(p) == 2 and len(q) == 2)
    p.leave()
    until("one member", lambda: len(q) == 1)
    q.leave()
    counters = [x.Counter("/kz/counter") for x in (c, d)]
    ts = [threading.Thread(target=lambda k=k: [k.__add__(1) for _ in range(50)], daemon=True) for k in counters]
    for t in ts:
        t.start()
    for t in ts:
        t.join(60)
    until("the sum is right", lambda: counters[0].value == 100)
    c.stop()
    d.stop()


@check("recipes")
def queues():
    c, d = pair()
    q = c.Queue("/kz/queue")
    for i, prio in ((1, 100), (2, 50), (3, 100)):
        q.put(b"%d" % i, prio)
    eq([d.Queue("/kz/queue").get() for _ in range(3)], [b"2", b"1", b"3"])
    lq, lr = c.LockingQueue("/kz/lqueue"), d.LockingQueue("/kz/lqueue")
    lq.put_all([b"a", b"b"])
    eq(lr.get(5), b"a")
    eq(lq.get(5), b"b")
    assert lr.holds_lock() and lr.consume() and lq.consume()
    eq(len(lq), 0)
    c.stop()
    d.stop()


@check("recipes")
def tree_cache():
    c, d = pair()
    c.ensure_path("/kz/cache/a")
    cache = TreeCache(c, "/kz/cache")
    cache.start()
    until("the cache is filled", lambda: cache.get_data("/kz/cache/a") is not None)
    for i in range(30):
        d.create("/kz/cache/n%d" % i, b"%d" % i)
    d.set("/kz/cache/a", b"new")
    until("all is in the cache", lambda: len(cache.get_children("/kz/cache") or ()) == 31 and cache.get_data("/kz/cache/a").data == b"new")
    d.delete("/kz/cache/n0")
    until("what went is gone", lambda: cache.get_data("/kz/cache/n0") is None)
    cache.close()
    c.stop()
    d.stop()


@check("ride")
def ride():
    c = client()
    c.ensure_path("/kz/ride")
    states, values = [], []
    c.add_listener(states.append)
    c.create("/kz/ride/e", ephemeral=True)
    c.create("/kz/ride/v", b"0")
    session = c.client_id[0]
    c.DataWatch("/kz/ride/v", lambda data, stat: values.append(int(data)))
    d = client()
    d.add_listener(states.append)
    end, n = time.time() + float(sys.argv[3]), 0
    while time.time() < end:
        n += 1
        d.retry(d.set, "/kz/ride/v", b"%d" % n)
        stat = d.retry(d.exists, "/kz/ride/e")
        assert stat and stat.ephemeralOwner == session, "the ephemeral has gone after %d" % n
        time.sleep(0.02)
    until("the last change is seen", lambda: values and values[-1] == n, 20)
    eq(values, sorted(values))
    assert KazooState.LOST not in states, states
    print("ok rode through %d writes" % n, flush=True)
    c.stop()
    d.stop()


def main():
    for f in CHECKS[sys.argv[2]]:
        f()
        print("ok", f.__name__, flush=True)


main()
