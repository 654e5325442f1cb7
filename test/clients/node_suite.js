// What programs do with the two clients of the npm registry, against the servers
// named as host:port,host:port.
//
// usage: node_suite.js HOSTS node-zookeeper-client|zookeeper basics|ride [SECONDS]
//
// Each check that holds is printed as "ok NAME".
'use strict';

const assert = require('node:assert');

const [hosts, library, group, seconds] = process.argv.slice(2);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const ok = (name) => console.log('ok ' + name);

async function until(what, f, limit = 15000) {
  const end = Date.now() + limit;
  while (!(await f())) {
    assert.ok(Date.now() < end, `not within ${limit} ms: ${what}`);
    await sleep(10);
  }
}

// Each library is wrapped to the same few functions; errors have a code as
// ZooKeeper numbers them.
function pure() {
  const zk = require('node-zookeeper-client');
  const wrap = (f) => new Promise((resolve, reject) => f((err, a, b) => (err ? reject(err) : resolve([a, b]))));
  return async () => {
    const c = zk.createClient(hosts, { sessionTimeout: 10000, retries: 1000, spinDelay: 200 });
    const states = [];
    c.on('state', (s) => states.push(s.name));
    c.connect();
    await new Promise((resolve) => c.once('connected', resolve));
    return {
      states,
      expired: () => states.includes('EXPIRED'),
      session: () => c.getSessionId().toString('hex'),
      create: async (path, data, { ephemeral, sequential } = {}) => {
        const mode = (ephemeral ? zk.CreateMode.EPHEMERAL : zk.CreateMode.PERSISTENT) + (sequential ? zk.CreateMode.PERSISTENT_SEQUENTIAL : 0);
        return (await wrap((done) => c.create(path, Buffer.from(data || ''), mode, done)))[0];
      },
      get: async (path, watcher) => (await wrap((done) => (watcher ? c.getData(path, watcher, done) : c.getData(path, done))))[0].toString(),
      set: (path, data, version) => wrap((done) => c.setData(path, Buffer.from(data), version, done)),
      exists: async (path, watcher) => Boolean((await wrap((done) => (watcher ? c.exists(path, watcher, done) : c.exists(path, done))))[0]),
      children: async (path) => (await wrap((done) => c.getChildren(path, done)))[0],
      remove: (path, version) => wrap((done) => c.remove(path, version, done)),
      multi: (make) => wrap((done) => make(c.transaction()).commit(done)),
      close: () => { c.close(); return sleep(50); },
    };
  };
}

function native() {
  const ZooKeeper = require('zookeeper');
  return async () => {
    const c = new ZooKeeper({ connect: hosts, timeout: 10000, debug_level: 1, host_order_deterministic: false });
    let expired = false;
    c.on('close', () => { expired = true; });
    await new Promise((resolve, reject) => {
      c.init({});
      c.once('connect', resolve);
      setTimeout(() => reject(new Error('not connected')), 20000).unref();
    });
    const again = async (f) => { // the C client gives what was under way back when its connection breaks
      for (;;) {
        try { return await f(); } catch (err) {
          if (![-4, -7].includes(code(err))) throw err;
          await sleep(50);
        }
      }
    };
    return {
      expired: () => expired,
      session: () => c.client_id,
      create: (path, data, { ephemeral, sequential } = {}) =>
        c.create(path, data || '', (ephemeral ? ZooKeeper.constants.ZOO_EPHEMERAL : 0) | (sequential ? ZooKeeper.constants.ZOO_SEQUENCE : 0)),
      get: (path, watcher) => again(async () => (await (watcher ? c.w_get(path, (type, state, p) => watcher({ type, path: p })) : c.get(path, false)))[1].toString()),
      set: (path, data, version) => again(() => c.set(path, data, version)),
      exists: (path, watcher) => again(async () => {
        try {
          return Boolean(await (watcher ? c.w_exists(path, (type, state, p) => watcher({ type, path: p })) : c.exists(path, false)));
        } catch (err) {
          if (code(err) === -101) return false;
          throw err;
        }
      }),
      children: (path) => again(() => c.get_children(path, false)),
      remove: (path, version) => c.delete_(path, version),
      close: () => { c.close(); return sleep(50); },
    };
  };
}

const dial = { 'node-zookeeper-client': pure, zookeeper: native }[library]();
const code = (err) => (err.getCode ? err.getCode() : err.code || parseInt(err.message, 10)); // "-101 no node"

async function fails(want, f) {
  try {
    await f();
  } catch (err) {
    assert.strictEqual(code(err), want, String(err));
    return;
  }
  assert.fail(`no error ${want}`);
}

async function basics() {
  const root = '/js-' + library;
  const [c, d] = [await dial(), await dial()];
  await c.create(root, '1');
  assert.strictEqual(await c.get(root), '1');
  await c.set(root, '2', 0);
  await fails(-103, () => c.set(root, '3', 0));
  await fails(-110, () => c.create(root, ''));
  await fails(-101, () => c.get(root + '/none'));
  const seq = [];
  for (let i = 0; i < 3; i++) seq.push(await c.create(root + '/s-', '', { sequential: true }));
  assert.deepStrictEqual(seq, [0, 1, 2].map((n) => `${root}/s-000000000${n}`));
  await c.create(root + '/e', '', { ephemeral: true });
  await fails(-111, () => c.remove(root, -1));
  assert.strictEqual((await c.children(root)).length, 4);
  ok('nodes');

  await until('the other sees it', () => d.exists(root + '/e'));
  const events = [];
  await d.exists(root + '/e', (e) => events.push(e));
  await d.get(root, (e) => events.push(e));
  await c.set(root, '4', -1);
  await until('the change', () => events.length === 1);
  await c.close();
  await until('the end of the ephemeral', () => events.length === 2);
  ok('watches');

  if (d.multi) {
    await d.multi((t) => t.create(root + '/m', Buffer.from('1')).setData(root + '/m', Buffer.from('2'), 0).check(root + '/m', 1).remove(root + '/m', 1));
    await fails(-101, () => d.multi((t) => t.create(root + '/m').remove(root + '/none')));
    assert.strictEqual(await d.exists(root + '/m'), false);
    ok('transactions');
  }
  for (const name of await d.children(root)) await d.remove(root + '/' + name, -1);
  await d.remove(root, -1);
  await d.close();
}

// ride works while somebody kills servers: the ephemeral stays, the last change is
// seen, and no session is lost.
async function ride() {
  const root = '/js-ride-' + library;
  const [c, d] = [await dial(), await dial()];
  await c.create(root, '0');
  await c.create(root + '/e', '', { ephemeral: true });
  let seen = 0;
  const look = async () => {
    for (;;) {
      try {
        seen = Number(await c.get(root, () => { look(); }));
        return;
      } catch (err) {
        await sleep(50);
      }
    }
  };
  await look();
  const end = Date.now() + Number(seconds) * 1000;
  let n = 0;
  while (Date.now() < end) {
    n++;
    for (;;) {
      try {
        await d.set(root, String(n), -1);
        break;
      } catch (err) {
        await sleep(50);
      }
    }
    let there;
    try {
      there = await d.exists(root + '/e');
    } catch (err) {
      continue;
    }
    assert.ok(there, `the ephemeral has gone after ${n}`);
    await sleep(20);
  }
  await until(`the last change is seen, after ${seen} of ${n}`, () => seen === n, 20000);
  assert.ok(!c.expired() && !d.expired(), 'a session was reported lost');
  ok(`rode through ${n} writes`);
  await c.close();
  await d.close();
}

({ basics, ride })[group]().then(() => process.exit(0), (err) => {
  console.error(err);
  process.exit(1);
});
