// What Rails sessions in a Redis do, without Ruby: redis-session-store with `serializer: :json` and the cache store read
// with GET or GETEX and write with SET EX, JSON that is read and written whole. Here by ioredis. Coppice gives HOST, PORT
// and COPPICE_SESSIONS_URL; the URL of a Redis works as well.
import { createServer } from 'node:http'
import { randomBytes } from 'node:crypto'
import Redis from 'ioredis'

const redis = new Redis(process.env.COPPICE_SESSIONS_URL)
redis.on('error', error => console.error(error.message))
const LEASE = 3600

const load = async sid => JSON.parse(await redis.getex(`session:${sid}`, 'EX', LEASE) || '{}')
const save = (sid, session) => redis.set(`session:${sid}`, JSON.stringify(session), 'EX', LEASE)
const shown = session => Object.fromEntries(Object.entries(session).filter(([k]) => !k.startsWith('_')))

createServer(async (req, res) => {
  const url = new URL(req.url, 'http://any')
  const [, act, field, value] = url.pathname.split('/')
  const answer = body => res.writeHead(200, { 'Content-Type': 'application/json' }).end(JSON.stringify(body))
  try {
    if (act == 'health') return answer('ok')
    let sid = /sid=([0-9a-f]{32})/.exec(req.headers.cookie || '')?.[1]
    if (!sid) res.setHeader('Set-Cookie', `sid=${sid = randomBytes(16).toString('hex')}; HttpOnly; SameSite=Lax`)
    if (act == 'logout') return answer(await redis.del(`session:${sid}`) && {})
    const session = await load(sid)
    await new Promise(done => setTimeout(done, Number(url.searchParams.get('wait') || 0)))
    if (act == 'set') session[field] = value
    if (act == 'drop') delete session[field]
    if (act) await save(sid, session)
    answer(shown(session))
  } catch (error) {
    res.writeHead(500).end(error.message)
  }
}).listen(Number(process.env.PORT || 3000), process.env.HOST || '127.0.0.1')
