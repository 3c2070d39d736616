import assert from 'node:assert/strict'
import { once } from 'node:events'
import { after, before, describe, it } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

import {
  ApiError, ConnectionError, IncompleteStreamError, KakeyaClient, KakeyaError, type RunningServer, TimedOutError, startServer,
} from '../src/index.js'
import { GREETING, HELLO, LONG, cancelled, collected, failure, isIdle, scripted, until } from './world.js'

describe('a real server', () => {
  let server: RunningServer
  let client: KakeyaClient

  before(async () => {
    server = await startServer({ models: ['tiny-chat', 'tiny'], args: ['--max-active', '1', '--max-queue', '1'] })
    client = server.client
  })

  after(() => server.stop())

  it('says how it is, what it has, and what it did', async () => {
    assert.equal((await client.health()).status, 'ok')
    assert.deepEqual((await client.listModels()).map((model) => model.id), ['tiny-chat', 'tiny'])
    assert.equal((await client.stats()).active, 0)
  })

  it('answers at once and in pieces', async () => {
    const answer = await client.chatCompletion({ ...HELLO, stream: true })
    assert.equal(answer.choices[0]?.message.content, GREETING)
    assert.equal(answer.choices[0].finish_reason, 'stop')
    assert.equal(answer.x_kakeya?.cache, 'raw')
    const chunks = await collected(client.chatCompletionStream({ ...HELLO, stream_options: { include_usage: true } }))
    assert.equal(chunks.map((chunk) => chunk.choices[0]?.delta.content ?? '').join(''), GREETING)
    assert.equal(chunks.at(-1)?.usage?.completion_tokens, answer.usage.completion_tokens)
    assert.equal((await collected(client.streamText(HELLO))).join(''), GREETING)
  })

  it('takes its address with /v1 too, and wants its token', async () => {
    const other = new KakeyaClient({ baseUrl: `${server.address}/v1/`, token: `${server.token}\n` })
    assert.equal((await other.listModels()).length, 2)
    const error = await failure(new KakeyaClient({ baseUrl: server.address }).listModels())
    assert.ok(error instanceof ApiError)
    assert.deepEqual([error.status, error.code, error.type], [401, 'invalid_api_key', 'authentication_error'])
    assert.equal((await new KakeyaClient({ baseUrl: server.address }).health()).status, 'ok')
  })

  it('refuses with a status, a code and a message, whole or streamed', async () => {
    const request = { ...HELLO, model: 'nope' }
    for (const work of [client.chatCompletion(request), collected(client.chatCompletionStream(request))]) {
      const error = await failure(work)
      assert.ok(error instanceof ApiError)
      assert.deepEqual([error.status, error.code, error.param], [404, 'model_not_found', 'model'])
      assert.match(error.message, /no model or channel 'nope'/)
    }
    const error = await failure(client.chatCompletion({ ...HELLO, temperature: 9 }))
    assert.ok(error instanceof ApiError && error.status === 400 && error.param === 'temperature')
  })

  it('ends an answer when its reader leaves', async () => {
    const count = await cancelled(client, server.token)
    for await (const chunk of client.chatCompletionStream(LONG)) if (chunk.choices[0]?.delta.content) break
    await until(() => isIdle(client))
    assert.equal(await cancelled(client, server.token), count + 1)
  })

  it('ends an answer at a signal: in a stream, before its first piece, and of a whole answer', async () => {
    const count = await cancelled(client, server.token)
    const reason = new Error('enough')
    const abort = new AbortController()
    const error = await failure((async () => {
      for await (const chunk of client.chatCompletionStream(LONG, { signal: abort.signal })) {
        if (chunk.choices[0]?.delta.content) abort.abort(reason)
      }
    })())
    assert.equal(error, reason)
    await until(() => isIdle(client))
    assert.equal(await cancelled(client, server.token), count + 1)
    for (const work of [
      (signal: AbortSignal) => client.chatCompletion(LONG, { signal }),
      (signal: AbortSignal) => client.chatCompletionStream({ ...LONG, n: 1 }, { signal }).next(),
    ]) {
      // The second answer waits for the first one.
      const first = client.chatCompletionStream(LONG)
      await first.next()
      const later = new AbortController()
      const waiting = failure(work(later.signal))
      await until(async () => (await client.stats()).waiting === 1)
      const full = await failure(client.chatCompletion(LONG))
      assert.ok(full instanceof ApiError && full.status === 429 && (full.retryAfter ?? 0) >= 1)
      later.abort()
      assert.equal((await waiting as Error).name, 'AbortError')
      await until(async () => (await client.stats()).waiting === 0)
      await first.return()
      await until(() => isIdle(client))
    }
    const never = await failure(client.chatCompletion(HELLO, { signal: AbortSignal.abort(reason) }))
    assert.equal(never, reason)
  })

  it('keeps nothing of an aborted call: the signal may serve for many', async () => {
    const { signal } = new AbortController()
    for (let i = 0; i < 20; i++) await client.health({ signal })
    assert.equal((await client.chatCompletion(HELLO, { signal })).choices[0]?.message.content, GREETING)
  })

  it('waits for a slow reader, whatever the time limit between two pieces', async () => {
    let text = ''
    for await (const piece of client.streamText(HELLO, { timeoutMs: 5000 })) {
      text += piece
      await sleep(text.length < 8 ? 1000 : 0)
    }
    assert.equal(text, GREETING)
  })

  it('gives up at the time limit, and the server too', async () => {
    const count = await cancelled(client, server.token)
    const error = await failure(client.chatCompletion(LONG, { timeoutMs: 300 }))
    assert.ok(error instanceof TimedOutError)
    await until(() => isIdle(client))
    await until(async () => (await cancelled(client, server.token)) === count + 1)
  })
})

const chunk = (content: string): string => `data: ${JSON.stringify({ choices: [{ index: 0, delta: { content } }] })}\n\n`

it('refuses an address or a token that cannot be used, without quoting it', () => {
  for (const options of [
    { baseUrl: 'localhost-secret' }, { baseUrl: 'localhost:1339/secret' }, { baseUrl: 'ftp://secret' },
    { baseUrl: 'http://me:secret@localhost' }, { token: 'secret\nsecret' }, { token: 'secr\u00e9t secret' },
  ]) {
    assert.throws(() => new KakeyaClient(options), (error) => error instanceof KakeyaError && !error.message.includes('secret'))
  }
  assert.equal(new KakeyaClient({ baseUrl: 'http://[::1]:99/proxy/v1/?x#y' }).baseUrl, 'http://[::1]:99/proxy')
})

describe('a server that fails', () => {
  const cases: [string, string, (error: unknown) => boolean][] = [
    ['ends without [DONE]', chunk('a'), (error) => error instanceof IncompleteStreamError],
    ['ends within an event', `${chunk('a')}data: {"choi`, (error) => error instanceof IncompleteStreamError],
    ['reports an error', `${chunk('a')}data: {"error":{"message":"broken","type":"server_error","code":"x"}}\n\ndata: [DONE]\n\n`,
      (error) => error instanceof ApiError && error.message === 'broken' && error.code === 'x' && error.status === undefined],
    ['sends an event that is no piece', `${chunk('a')}data: {"b":1}\n\n`,
      (error) => error instanceof ApiError && error.message === '{"b":1}'],
    ['sends what is not JSON', `${chunk('a')}data: oops\n\n`, (error) => error instanceof ApiError && error.message === 'oops'],
  ]
  for (const [what, body, isRight] of cases) {
    it(`${what}: the text before comes, then an error`, async () => {
      const { url, server } = await scripted((_, response) => { response.end(body) })
      let text = ''
      const error = await failure((async () => {
        for await (const piece of new KakeyaClient({ baseUrl: url }).streamText(HELLO)) text += piece
      })())
      assert.equal(text, 'a')
      assert.ok(isRight(error), String(error))
      server.close()
    })
  }

  it('splits characters between its writes', async () => {
    const { url, server } = await scripted(async (_, response) => {
      response.socket?.setNoDelay()
      for (const byte of Buffer.from(`${chunk('é€😀')}data: [DONE]\n\n`)) {
        response.write(Buffer.of(byte))
        await new Promise(setImmediate)
      }
      response.end()
    })
    assert.deepEqual(await collected(new KakeyaClient({ baseUrl: url }).streamText(HELLO)), ['é€😀'])
    server.close()
  })

  it('loses the connection', async () => {
    const { url, server } = await scripted((_, response) => {
      response.write(chunk('a'), () => { response.destroy() })
    })
    const stream = new KakeyaClient({ baseUrl: url }).streamText(HELLO)
    assert.equal((await stream.next()).value, 'a')
    assert.ok(await failure(stream.next()) instanceof ConnectionError)
    server.close()
    await once(server, 'close')
    const error = await failure(new KakeyaClient({ baseUrl: url }).health())
    assert.ok(error instanceof ConnectionError)
    assert.match(error.message, /ECONNREFUSED/)
  })

  it('falls silent', async () => {
    const { url, server } = await scripted((request, response) => {
      if (request.method === 'POST') response.write(chunk('a'))
    })
    const client = new KakeyaClient({ baseUrl: url })
    const stream = client.streamText(HELLO, { timeoutMs: 100 })
    assert.equal((await stream.next()).value, 'a')
    assert.ok(await failure(stream.next()) instanceof TimedOutError)
    assert.ok(await failure(client.health({ timeoutMs: 100 })) instanceof TimedOutError)
    server.closeAllConnections()
    server.close()
  })

  it('answers with a page, and with half of its JSON', async () => {
    const { url, server } = await scripted((request, response) => {
      response.statusCode = request.url === '/health' ? 502 : 200
      response.end(request.url === '/health' ? '<h1>Bad gateway</h1>' : '{"data": [')
    })
    const client = new KakeyaClient({ baseUrl: url })
    const error = await failure(client.health())
    assert.ok(error instanceof ApiError && error.status === 502 && error.message === '<h1>Bad gateway</h1>')
    assert.ok(await failure(client.listModels()) instanceof ApiError)
    server.closeAllConnections()
    server.close()
  })

  it('is another program, or says that there is no error', async () => {
    const { url, server } = await scripted((request, response) => {
      response.end(request.method === 'GET' ? '{"hello":"world"}' : '{"choices":[],"error":null}')
    })
    const client = new KakeyaClient({ baseUrl: url })
    const error = await failure(client.listModels())
    assert.ok(error instanceof ApiError && error.message === '{"hello":"world"}')
    assert.deepEqual((await client.chatCompletion(HELLO)).choices, [])
    server.closeAllConnections()
    server.close()
  })
})
