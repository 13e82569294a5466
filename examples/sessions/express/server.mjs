// What a visitor said, by express-session and connect-redis as they are. Coppice gives HOST, PORT and
// COPPICE_SESSIONS_URL; the URL of a Redis works as well.
import express from 'express'
import session from 'express-session'
import { RedisStore } from 'connect-redis'
import { createClient } from 'redis'

const client = createClient({ url: process.env.COPPICE_SESSIONS_URL })
client.on('error', error => console.error(error.message))
await client.connect()

const app = express()
app.get('/health', (req, res) => res.send('ok\n'))
app.use(session({
  store: new RedisStore({ client }),
  secret: process.env.SESSION_SECRET || 'change me',
  resave: false,
  saveUninitialized: false,
  cookie: { maxAge: 3600_000, sameSite: 'lax' },
}))

// A page that takes its time, as pages do.
const work = req => new Promise(done => setTimeout(done, Number(req.query.wait || 0)))
const shown = session => Object.fromEntries(Object.entries(session).filter(([k]) => k != 'cookie' && !k.startsWith('_')))

app.get('/', (req, res) => res.json(shown(req.session)))
app.get('/set/:field/:value', async (req, res) => {
  await work(req)
  req.session[req.params.field] = req.params.value
  res.json(shown(req.session))
})
app.get('/drop/:field', async (req, res) => {
  await work(req)
  delete req.session[req.params.field]
  res.json(shown(req.session))
})
app.get('/logout', (req, res) => req.session.destroy(() => res.json({})))

app.listen(Number(process.env.PORT || 3000), process.env.HOST || '127.0.0.1')
