// What Node programs do with a linear namespace, by ioredis: node client.mjs URL [URL ...], one of each node.
import assert from 'node:assert/strict'
import Redis from 'ioredis'

const at = process.argv.slice(2).map(url => new Redis(url, { maxRetriesPerRequest: 2 }))
const [a, b] = [at[0], at.at(-1)]
await a.flushdb()
assert.equal(await a.set('k', 'v', 'EX', 100), 'OK')
assert.equal(await b.get('k'), 'v')
assert.equal(await b.set('k', 'x', 'NX'), null)
assert.deepEqual(await a.pipeline().incr('n').incrby('n', 4).get('n').exec(), [[null, 1], [null, 5], [null, '5']])
assert.deepEqual(await b.multi().hset('h', { f: 1, g: 2 }).hgetall('h').rpush('l', 'a', 'b').exec(), [[null, 2], [null, { f: '1', g: '2' }], [null, 2]])
await a.watch('n')
await b.set('n', 9)
assert.equal(await a.multi().incr('n').exec(), null)
const found = []
for (let i = 0; i < 50; i++) await a.sadd('s', `m${i}`)
for await (const page of b.sscanStream('s', { count: 7 })) found.push(...page)
assert.equal(new Set(found).size, 50)
assert.deepEqual(await a.lpop('l', 5), ['a', 'b'])
assert.equal(await a.call('FCALL', 'number.add', 1, 'n', 1), 10)
assert.equal(await a.zadd('z', 1, 'a', 2.5, 'b'), 2)
assert.deepEqual(await b.zrange('z', 0, -1, 'WITHSCORES'), ['a', '1', 'b', '2.5'])
const entry = await a.xadd('x', '*', 'f', 'v')
assert.deepEqual(await b.xread('COUNT', 1, 'STREAMS', 'x', '0'), [['x', [[entry, ['f', 'v']]]]])
await assert.rejects(a.call('JSON.GET', 'x'), /linear/)
const many = await Promise.all(Array.from({ length: 1000 }, (_, i) => at[i % at.length].incr('many')))
assert.deepEqual([...many].sort((x, y) => x - y), Array.from({ length: 1000 }, (_, i) => i + 1))
at.forEach(client => client.disconnect())
console.log('ioredis is content')
