import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;

import org.apache.curator.RetryPolicy;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.api.transaction.CuratorTransactionResult;
import org.apache.curator.framework.recipes.atomic.AtomicValue;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.NodeCache;
import org.apache.curator.framework.recipes.cache.PathChildrenCache;
import org.apache.curator.framework.recipes.cache.TreeCache;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.nodes.GroupMember;
import org.apache.curator.framework.recipes.nodes.PersistentNode;
import org.apache.curator.framework.recipes.nodes.PersistentTtlNode;
import org.apache.curator.framework.recipes.queue.DistributedDelayQueue;
import org.apache.curator.framework.recipes.queue.DistributedIdQueue;
import org.apache.curator.framework.recipes.queue.DistributedPriorityQueue;
import org.apache.curator.framework.recipes.queue.DistributedQueue;
import org.apache.curator.framework.recipes.queue.QueueBuilder;
import org.apache.curator.framework.recipes.queue.QueueConsumer;
import org.apache.curator.framework.recipes.queue.QueueSerializer;
import org.apache.curator.framework.recipes.queue.SimpleDistributedQueue;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.framework.recipes.watch.PersistentWatcher;
import org.apache.curator.retry.RetryForever;
import org.apache.curator.retry.RetryNTimes;
import org.apache.curator.x.discovery.ServiceCache;
import org.apache.curator.x.discovery.ServiceDiscovery;
import org.apache.curator.x.discovery.ServiceDiscoveryBuilder;
import org.apache.curator.x.discovery.ServiceInstance;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.data.Stat;

/**
 * What programs do with Curator, against the servers named as host:port,host:port.
 *
 * usage: CuratorSuite HOSTS recipes|ride [SECONDS]
 *        CuratorSuite HOSTS lock PATH: holds a mutex until its input ends
 */
public class CuratorSuite {
    interface Check {
        void run(CuratorFramework c, CuratorFramework d) throws Exception;
    }

    static String hosts;

    static CuratorFramework client() throws InterruptedException {
        CuratorFramework c = CuratorFrameworkFactory.builder().connectString(hosts).sessionTimeoutMs(10000).connectionTimeoutMs(5000)
            .retryPolicy(new RetryForever(200)).build();
        c.start();
        if (!c.blockUntilConnected(20, TimeUnit.SECONDS)) {
            throw new AssertionError("not connected");
        }
        return c;
    }

    static void eq(Object got, Object want) {
        if (!want.equals(got)) {
            throw new AssertionError("got " + got + ", want " + want);
        }
    }

    static void until(String what, Callable<Boolean> f) throws Exception {
        long end = System.currentTimeMillis() + 20000;
        while (!f.call()) {
            if (System.currentTimeMillis() > end) {
                throw new AssertionError("not within 20 s: " + what);
            }
            Thread.sleep(10);
        }
    }

    static byte[] bytes(String s) {
        return s.getBytes(StandardCharsets.UTF_8);
    }

    static void check(String name, Check f) throws Exception {
        CuratorFramework c = client();
        CuratorFramework d = client();
        try {
            f.run(c, d);
        } finally {
            c.close();
            d.close();
        }
        System.out.println("ok " + name);
        System.out.flush();
    }

    static final QueueSerializer<String> TEXT = new QueueSerializer<String>() {
        public byte[] serialize(String s) {
            return bytes(s);
        }

        public String deserialize(byte[] b) {
            return new String(b, StandardCharsets.UTF_8);
        }
    };

    static QueueConsumer<String> into(ConcurrentLinkedQueue<String> list) {
        return new QueueConsumer<String>() {
            public void consumeMessage(String s) {
                list.add(s);
            }

            public void stateChanged(CuratorFramework c, ConnectionState s) {
            }
        };
    }

    static void recipes() throws Exception {
        check("nodes", (c, d) -> {
            c.create().creatingParentContainersIfNeeded().forPath("/cu/nodes/a", bytes("1"));
            Stat st = new Stat();
            eq(new String(c.getData().storingStatIn(st).forPath("/cu/nodes/a")), "1");
            eq(st.getVersion(), 0);
            c.setData().withVersion(0).forPath("/cu/nodes/a", bytes("2"));
            try {
                c.setData().withVersion(0).forPath("/cu/nodes/a", bytes("3"));
                throw new AssertionError("a bad version was taken");
            } catch (KeeperException.BadVersionException e) {
                // as it should be
            }
            for (CreateMode m : CreateMode.values()) {
                if (m.isTTL()) {
                    c.create().withTtl(60000).withMode(m).forPath("/cu/nodes/" + m + "-");
                } else {
                    c.create().withProtection().withMode(m).forPath("/cu/nodes/" + m + "-");
                }
            }
            eq(c.getChildren().forPath("/cu/nodes").size(), 1 + CreateMode.values().length);
            eq(c.getZookeeperClient().getZooKeeper().getAllChildrenNumber("/cu/nodes"), 1 + CreateMode.values().length);
            eq(c.getZookeeperClient().getZooKeeper().getEphemerals("/cu/nodes").size(), 2);
            eq(c.getConfig().forEnsemble() != null, true);
            eq(c.getZookeeperClient().getZooKeeper().whoAmI().size() >= 1, true);
            c.delete().deletingChildrenIfNeeded().forPath("/cu");
        });
        check("transactions", (c, d) -> {
            List<CuratorTransactionResult> r = c.transaction().forOperations(
                c.transactionOp().create().forPath("/cu-txn", bytes("1")), c.transactionOp().setData().forPath("/cu-txn", bytes("2")),
                c.transactionOp().check().withVersion(1).forPath("/cu-txn"), c.transactionOp().create().withMode(CreateMode.PERSISTENT_SEQUENTIAL).forPath("/cu-txn/s-"));
            eq(r.get(3).getResultPath(), "/cu-txn/s-0000000000");
            try {
                c.transaction().forOperations(c.transactionOp().delete().forPath("/cu-txn/s-0000000000"), c.transactionOp().check().withVersion(9).forPath("/cu-txn"));
                throw new AssertionError("a failed transaction was done");
            } catch (KeeperException.BadVersionException e) {
                eq(e.getResults().size(), 2);
            }
            c.delete().deletingChildrenIfNeeded().forPath("/cu-txn");
        });
        check("mutex", (c, d) -> {
            InterProcessMutex a = new InterProcessMutex(c, "/cu-mutex");
            InterProcessMutex b = new InterProcessMutex(d, "/cu-mutex");
            a.acquire();
            eq(b.acquire(300, TimeUnit.MILLISECONDS), false);
            a.acquire(); // reentrant
            a.release();
            eq(b.acquire(300, TimeUnit.MILLISECONDS), false);
            a.release();
            eq(b.acquire(10, TimeUnit.SECONDS), true);
            b.release();
            AtomicInteger inside = new AtomicInteger();
            AtomicInteger worst = new AtomicInteger();
            List<Thread> ts = new ArrayList<>();
            for (int i = 0; i < 8; i++) {
                InterProcessMutex m = new InterProcessMutex(i % 2 == 0 ? c : d, "/cu-mutex");
                ts.add(new Thread(() -> {
                    try {
                        for (int j = 0; j < 10; j++) {
                            m.acquire();
                            worst.accumulateAndGet(inside.incrementAndGet(), Math::max);
                            inside.decrementAndGet();
                            m.release();
                        }
                    } catch (Exception e) {
                        worst.set(99);
                    }
                }));
            }
            for (Thread x : ts) {
                x.start();
            }
            for (Thread x : ts) {
                x.join();
            }
            eq(worst.get(), 1);
        });
        check("read-write lock", (c, d) -> {
            InterProcessReadWriteLock a = new InterProcessReadWriteLock(c, "/cu-rw");
            InterProcessReadWriteLock b = new InterProcessReadWriteLock(d, "/cu-rw");
            a.readLock().acquire();
            eq(b.readLock().acquire(10, TimeUnit.SECONDS), true);
            eq(b.writeLock().acquire(300, TimeUnit.MILLISECONDS), false);
            a.readLock().release();
            b.readLock().release();
            eq(b.writeLock().acquire(10, TimeUnit.SECONDS), true);
            eq(a.readLock().acquire(300, TimeUnit.MILLISECONDS), false);
            b.writeLock().release();
        });
        check("semaphores and multi-lock", (c, d) -> {
            InterProcessSemaphoreV2 a = new InterProcessSemaphoreV2(c, "/cu-sem", 2);
            InterProcessSemaphoreV2 b = new InterProcessSemaphoreV2(d, "/cu-sem", 2);
            Lease one = a.acquire();
            Lease two = b.acquire(10, TimeUnit.SECONDS);
            eq(a.acquire(300, TimeUnit.MILLISECONDS) == null, true);
            a.returnLease(one);
            eq(a.acquire(10, TimeUnit.SECONDS) != null, true);
            b.returnLease(two);
            InterProcessSemaphoreMutex s = new InterProcessSemaphoreMutex(c, "/cu-semmutex");
            s.acquire();
            eq(new InterProcessSemaphoreMutex(d, "/cu-semmutex").acquire(300, TimeUnit.MILLISECONDS), false);
            s.release();
            InterProcessMultiLock m = new InterProcessMultiLock(c, Arrays.asList("/cu-m1", "/cu-m2"));
            m.acquire();
            eq(new InterProcessMutex(d, "/cu-m2").acquire(300, TimeUnit.MILLISECONDS), false);
            m.release();
        });
        check("leader latch", (c, d) -> {
            LeaderLatch a = new LeaderLatch(c, "/cu-latch", "a");
            a.start();
            eq(a.await(10, TimeUnit.SECONDS), true);
            LeaderLatch b = new LeaderLatch(d, "/cu-latch", "b");
            b.start();
            until("two take part", () -> a.getParticipants().size() == 2);
            eq(b.hasLeadership(), false);
            eq(b.getLeader().getId(), "a");
            a.close();
            eq(b.await(10, TimeUnit.SECONDS), true);
            b.close();
        });
        check("leader selector", (c, d) -> {
            AtomicInteger at = new AtomicInteger();
            AtomicInteger worst = new AtomicInteger();
            CountDownLatch terms = new CountDownLatch(10);
            List<LeaderSelector> all = new ArrayList<>();
            for (int i = 0; i < 4; i++) {
                LeaderSelector s = new LeaderSelector(i % 2 == 0 ? c : d, "/cu-selector", new LeaderSelectorListenerAdapter() {
                    public void takeLeadership(CuratorFramework x) throws Exception {
                        worst.accumulateAndGet(at.incrementAndGet(), Math::max);
                        Thread.sleep(5);
                        at.decrementAndGet();
                        terms.countDown();
                    }
                });
                s.autoRequeue();
                s.start();
                all.add(s);
            }
            eq(terms.await(20, TimeUnit.SECONDS), true);
            for (LeaderSelector s : all) {
                s.close();
            }
            eq(worst.get(), 1);
        });
        check("barriers", (c, d) -> {
            DistributedBarrier b = new DistributedBarrier(c, "/cu-barrier");
            b.setBarrier();
            d.sync().forPath("/cu-barrier");
            eq(new DistributedBarrier(d, "/cu-barrier").waitOnBarrier(300, TimeUnit.MILLISECONDS), false);
            b.removeBarrier();
            eq(new DistributedBarrier(d, "/cu-barrier").waitOnBarrier(10, TimeUnit.SECONDS), true);
            AtomicInteger inside = new AtomicInteger();
            List<Thread> ts = new ArrayList<>();
            for (CuratorFramework x : Arrays.asList(c, d)) {
                ts.add(new Thread(() -> {
                    try {
                        DistributedDoubleBarrier db = new DistributedDoubleBarrier(x, "/cu-double", 2);
                        db.enter();
                        inside.incrementAndGet();
                        db.leave();
                    } catch (Exception e) {
                        inside.set(-99);
                    }
                }));
            }
            for (Thread t : ts) {
                t.start();
            }
            for (Thread t : ts) {
                t.join();
            }
            eq(inside.get(), 2);
        });
        check("counters", (c, d) -> {
            SharedCount a = new SharedCount(c, "/cu-count", 0);
            SharedCount b = new SharedCount(d, "/cu-count", 0);
            a.start();
            b.start();
            a.setCount(7);
            until("the other sees it", () -> b.getCount() == 7);
            a.close();
            b.close();
            RetryPolicy retry = new RetryNTimes(1000, 2);
            List<Thread> ts = new ArrayList<>();
            for (int i = 0; i < 4; i++) {
                DistributedAtomicLong n = new DistributedAtomicLong(i % 2 == 0 ? c : d, "/cu-atomic", retry);
                ts.add(new Thread(() -> {
                    for (int j = 0; j < 20; j++) {
                        try {
                            AtomicValue<Long> v = n.increment();
                            if (!v.succeeded()) {
                                j--;
                            }
                        } catch (Exception e) {
                            return;
                        }
                    }
                }));
            }
            for (Thread t : ts) {
                t.start();
            }
            for (Thread t : ts) {
                t.join();
            }
            c.sync().forPath("/cu-atomic");
            eq(new DistributedAtomicLong(c, "/cu-atomic", retry).get().postValue(), 80L);
        });
        check("caches", (c, d) -> {
            c.create().creatingParentsIfNeeded().forPath("/cu-cache/a", bytes("0"));
            TreeCache tree = new TreeCache(c, "/cu-cache");
            tree.start();
            PathChildrenCache kids = new PathChildrenCache(c, "/cu-cache", true);
            kids.start(PathChildrenCache.StartMode.BUILD_INITIAL_CACHE);
            NodeCache node = new NodeCache(c, "/cu-cache/a");
            node.start(true);
            CuratorCache cache = CuratorCache.build(c, "/cu-cache");
            cache.start();
            for (int i = 0; i < 30; i++) {
                d.create().forPath("/cu-cache/n" + i, bytes("" + i));
            }
            d.setData().forPath("/cu-cache/a", bytes("new"));
            until("all are up to date", () -> tree.getCurrentChildren("/cu-cache") != null && tree.getCurrentChildren("/cu-cache").size() == 31
                && kids.getCurrentData().size() == 31 && new String(node.getCurrentData().getData()).equals("new") && cache.size() == 32);
            d.delete().forPath("/cu-cache/n0");
            until("what went is gone", () -> tree.getCurrentData("/cu-cache/n0") == null && kids.getCurrentData().size() == 30 && cache.size() == 31);
            tree.close();
            kids.close();
            node.close();
            cache.close();
            AtomicInteger events = new AtomicInteger();
            PersistentWatcher w = new PersistentWatcher(c, "/cu-cache", true);
            w.getListenable().addListener(e -> events.incrementAndGet());
            w.start();
            Thread.sleep(300);
            d.setData().forPath("/cu-cache/a", bytes("1"));
            d.create().forPath("/cu-cache/a/x");
            until("two events", () -> events.get() >= 2);
            w.close();
            c.delete().deletingChildrenIfNeeded().forPath("/cu-cache");
        });
        check("nodes that stay", (c, d) -> {
            PersistentNode n = new PersistentNode(c, CreateMode.EPHEMERAL, false, "/cu-persistent/e", bytes("1"));
            n.start();
            eq(n.waitForInitialCreate(10, TimeUnit.SECONDS), true);
            d.sync().forPath("/");
            d.delete().forPath("/cu-persistent/e");
            until("it is made again", () -> d.checkExists().forPath("/cu-persistent/e") != null);
            n.close();
            PersistentTtlNode ttl = new PersistentTtlNode(c, "/cu-ttl", 10000, bytes("1"));
            ttl.start();
            eq(ttl.waitForInitialCreate(10, TimeUnit.SECONDS), true);
            ttl.close();
            GroupMember one = new GroupMember(c, "/cu-group", "one");
            GroupMember two = new GroupMember(d, "/cu-group", "two");
            one.start();
            two.start();
            until("two members", () -> one.getCurrentMembers().size() == 2);
            two.close();
            until("one member", () -> one.getCurrentMembers().size() == 1);
            one.close();
        });
        check("queues", (c, d) -> {
            ConcurrentLinkedQueue<String> got = new ConcurrentLinkedQueue<>();
            DistributedQueue<String> q = QueueBuilder.builder(c, into(got), TEXT, "/cu-queue").lockPath("/cu-queue-locks").buildQueue();
            q.start();
            DistributedQueue<String> p = QueueBuilder.builder(d, null, TEXT, "/cu-queue").buildQueue();
            p.start();
            for (int i = 0; i < 20; i++) {
                p.put("" + i);
            }
            until("all have come", () -> got.size() == 20);
            p.close();
            q.close();
            ConcurrentLinkedQueue<String> ids = new ConcurrentLinkedQueue<>();
            DistributedIdQueue<String> iq = QueueBuilder.builder(c, into(ids), TEXT, "/cu-idqueue").buildIdQueue();
            iq.start();
            iq.put("x", "id-1");
            until("it has come", () -> ids.size() == 1);
            iq.close();
            ConcurrentLinkedQueue<String> prio = new ConcurrentLinkedQueue<>();
            DistributedPriorityQueue<String> pp = QueueBuilder.builder(d, null, TEXT, "/cu-prio").buildPriorityQueue(0);
            pp.start();
            pp.put("late", 20);
            pp.put("early", 10);
            DistributedPriorityQueue<String> pq = QueueBuilder.builder(c, into(prio), TEXT, "/cu-prio").buildPriorityQueue(0);
            c.sync().forPath("/cu-prio");
            pq.start();
            until("both have come", () -> prio.size() == 2);
            eq(prio.peek(), "early");
            pp.close();
            pq.close();
            ConcurrentLinkedQueue<String> late = new ConcurrentLinkedQueue<>();
            DistributedDelayQueue<String> dq = QueueBuilder.builder(c, into(late), TEXT, "/cu-delay").buildDelayQueue();
            dq.start();
            dq.put("x", System.currentTimeMillis() + 300);
            until("it has come", () -> late.size() == 1);
            dq.close();
            SimpleDistributedQueue simple = new SimpleDistributedQueue(c, "/cu-simple");
            new SimpleDistributedQueue(d, "/cu-simple").offer(bytes("x"));
            eq(new String(simple.poll(10, TimeUnit.SECONDS)), "x");
        });
        check("service discovery", (c, d) -> {
            ServiceInstance<Void> here = ServiceInstance.<Void>builder().name("billing").address("10.0.0.1").port(80).build();
            ServiceDiscovery<Void> a = ServiceDiscoveryBuilder.builder(Void.class).client(c).basePath("/cu-services").thisInstance(here).build();
            a.start();
            ServiceDiscovery<Void> b = ServiceDiscoveryBuilder.builder(Void.class).client(d).basePath("/cu-services").build();
            b.start();
            ServiceCache<Void> cache = b.serviceCacheBuilder().name("billing").build();
            cache.start();
            until("it is found", () -> cache.getInstances().size() == 1);
            eq(b.queryForInstances("billing").iterator().next().getPort(), 80);
            a.close();
            until("it is gone", () -> cache.getInstances().isEmpty());
            cache.close();
            b.close();
        });
    }

    static void ride(long seconds) throws Exception {
        CuratorFramework c = client();
        CuratorFramework d = client();
        List<ConnectionState> states = Collections.synchronizedList(new ArrayList<>());
        c.getConnectionStateListenable().addListener((x, s) -> states.add(s));
        d.getConnectionStateListenable().addListener((x, s) -> states.add(s));
        c.create().creatingParentsIfNeeded().withMode(CreateMode.EPHEMERAL).forPath("/cu-ride/e");
        c.create().forPath("/cu-ride/v", bytes("0"));
        long session = c.getZookeeperClient().getZooKeeper().getSessionId();
        NodeCache cache = new NodeCache(c, "/cu-ride/v");
        AtomicReference<String> seen = new AtomicReference<>("0");
        cache.getListenable().addListener(() -> seen.set(new String(cache.getCurrentData().getData())));
        cache.start(true);
        InterProcessMutex m = new InterProcessMutex(d, "/cu-ride-lock");
        long end = System.currentTimeMillis() + seconds * 1000;
        int n = 0;
        while (System.currentTimeMillis() < end) {
            m.acquire();
            d.setData().forPath("/cu-ride/v", bytes("" + ++n));
            m.release();
            Stat st = d.checkExists().forPath("/cu-ride/e");
            if (st == null || st.getEphemeralOwner() != session) {
                throw new AssertionError("the ephemeral has gone after " + n);
            }
            Thread.sleep(20);
        }
        String last = "" + n;
        until("the last change is seen, after " + seen.get() + " of " + n, () -> seen.get().equals(last));
        if (states.contains(ConnectionState.LOST)) {
            throw new AssertionError("a session was reported lost: " + states);
        }
        System.out.println("ok rode through " + n + " writes");
        c.close();
        d.close();
    }

    static void lock(String path) throws Exception {
        CuratorFramework c = client();
        InterProcessMutex m = new InterProcessMutex(c, path);
        m.acquire();
        System.out.println("ok locked");
        System.out.flush();
        while (System.in.read() >= 0) {
            // until the input ends
        }
        m.release();
        System.out.println("ok released");
        c.close();
    }

    public static void main(String[] args) throws Exception {
        hosts = args[0];
        switch (args[1]) {
            case "recipes":
                recipes();
                break;
            case "ride":
                ride(Long.parseLong(args[2]));
                break;
            default:
                lock(args[2]);
        }
        System.exit(0);
    }
}
