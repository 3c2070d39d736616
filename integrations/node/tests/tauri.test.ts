import assert from 'node:assert/strict'
import { after, afterEach, before, describe, it } from 'node:test'

import { clearMocks, mockIPC } from '@tauri-apps/api/mocks'

import {
  ApiError, IncompleteStreamError, KakeyaClient, type RunningServer, startServer,
} from '../src/index.js'
import { type Backend, KakeyaBackend, register } from '../src/extension.js'
import { DONE, TauriSource, eventName, kakeyaCommands } from '../src/tauri.js'
import { GREETING, HELLO, LONG, cancelled, collected, failure, isIdle, until } from './world.js'

Object.assign(globalThis, { window: globalThis })
const { invoke } = await import('@tauri-apps/api/core')
const { emit, listen } = await import('@tauri-apps/api/event')

type Carry = ReturnType<typeof kakeyaCommands>

let server: RunningServer
let client: KakeyaClient

before(async () => {
  server = await startServer({ models: ['tiny-chat', 'tiny'] })
  client = server.client
})
after(() => server.stop())
afterEach(() => { clearMocks() })

/** Have Tauri's mocks carry out the plugin's commands. */
function plugged(carry: Carry = kakeyaCommands(client, emit)): TauriSource {
  mockIPC((command, args) => carry(command, args as Record<string, unknown>), { shouldMockEvents: true })
  return new TauriSource({ invoke, listen })
}

const backends: [string, () => KakeyaBackend][] = [
  ['HTTP', () => new KakeyaBackend(client)],
  ['Tauri', () => new KakeyaBackend(plugged())],
]
for (const [way, make] of backends) {
  describe(`the backend over ${way}`, () => {
    it('lists, answers, streams and tells how it is', async () => {
      const backend = make()
      assert.deepEqual([backend.id, backend.kind], ['kakeyalattice', 'local'])
      assert.deepEqual((await backend.listModels()).map((model) => model.id), ['tiny-chat', 'tiny'])
      assert.equal((await backend.chatCompletion(HELLO)).choices[0]?.message.content, GREETING)
      assert.equal(await backend.healthCheck(), true)
      assert.equal((await backend.getStats()).active, 0)
      let text = ''
      await backend.chatCompletionStream(HELLO, (delta) => { text += delta })
      assert.equal(text, GREETING)
    })

    it("throws the server's error", async () => {
      const backend = make()
      const request = { ...HELLO, model: 'nope' }
      for (const work of [backend.chatCompletion(request), backend.chatCompletionStream(request, () => undefined)]) {
        const error = await failure(work)
        assert.ok(error instanceof ApiError)
        assert.deepEqual([error.status, error.code], [404, 'model_not_found'])
      }
    })

    it('ends the answer on the server at a signal, and if a delta is refused', async () => {
      const backend = make()
      const reason = new Error('enough')
      const count = await cancelled(client, server.token)
      const abort = new AbortController()
      const stopped = backend.chatCompletionStream(LONG, () => { abort.abort(reason) }, abort.signal)
      assert.equal(await failure(stopped), reason)
      await until(() => isIdle(client))
      assert.equal(await failure(backend.chatCompletionStream(LONG, () => { throw reason })), reason)
      await until(() => isIdle(client))
      assert.equal(await cancelled(client, server.token), count + 2)
    })
  })
}

describe('the plugin', () => {
  it('loses no text of a caller that listens only after the start', async () => {
    plugged()
    const id = await invoke<string>('plugin:kakeyalattice|chat_completion_stream_start', { request: HELLO })
    await until(() => isIdle(client)) // the answer is complete
    let text = ''
    await listen<string>(`kakeyalattice:${id}`, (event) => { text += event.payload })
    await invoke('plugin:kakeyalattice|chat_completion_stream_wait', { streamId: id })
    assert.equal(text, `${GREETING}__DONE__`)
    assert.deepEqual(await invoke('plugin:kakeyalattice|chat_completion_stream_wait', { streamId: 'unknown' }), null)
  })

  it('has the form of the earlier commands', async () => {
    plugged()
    const list = await invoke<{ object: string; data: unknown[] }>('plugin:kakeyalattice|list_models')
    assert.deepEqual([list.object, list.data.length], ['list', 2])
    assert.equal((await invoke<{ ok: boolean }>('plugin:kakeyalattice|health')).ok, true)
    const refused = { status: 404, code: 'model_not_found' }
    for (const command of ['chat_completion', 'chat_completion_stream_start']) {
      const error = await failure(invoke(`plugin:kakeyalattice|${command}`, { request: { ...HELLO, model: 'nope' } }))
      const { status, code } = JSON.parse(JSON.stringify(error)) as { status: number; code: string }
      assert.deepEqual({ status, code }, refused)
    }
    assert.match((await failure(invoke('plugin:kakeyalattice|chat_completion')) as Error).message, /no request/)
    assert.match((await failure(invoke('plugin:kakeyalattice|rm')) as Error).message, /no command rm/)
    const wrong = failure(invoke('plugin:kakeyalattice|chat_completion_stream_start', { request: HELLO, streamId: 'a b' }))
    assert.match((await wrong as Error).message, /cannot be used/)
  })

  it('streams to several callers at once, each its own', async () => {
    const backend = new KakeyaBackend(plugged())
    const texts = await Promise.all([HELLO, { ...HELLO, max_tokens: 1 }, HELLO].map(async (request) => {
      let text = ''
      await backend.chatCompletionStream(request, (delta) => { text += delta })
      return text
    }))
    assert.deepEqual([texts[0], texts[2]], [GREETING, GREETING])
    assert.ok(GREETING.startsWith(texts[1] ?? '') && texts[1] !== GREETING)
  })

  it('carries the text that ends a stream, and an error after some text', async () => {
    async function* speak(): AsyncGenerator<string, void, undefined> {
      yield* await Promise.resolve(['a', DONE, 'b'])
      if (fails) throw new ApiError('broken', { code: 'x' })
    }
    let fails = false
    const source = plugged(kakeyaCommands(Object.assign(Object.create(client) as KakeyaClient, { streamText: speak }), emit))
    assert.equal((await collected(source.streamText(HELLO))).join(''), `a${DONE}b`)
    fails = true
    let text = ''
    const error = await failure((async () => { for await (const piece of source.streamText(HELLO)) text += piece })())
    assert.equal(text, `a${DONE}b`)
    assert.ok(error instanceof ApiError && error.message === 'broken' && error.code === 'x')
  })

  it('ends at a signal that comes while it begins to listen', async () => {
    const controller = new AbortController()
    const slow = (...args: Parameters<typeof listen>): ReturnType<typeof listen> => {
      controller.abort(new Error('enough'))
      return listen(...args)
    }
    mockIPC(() => new Promise(() => undefined), { shouldMockEvents: true })
    const stream = new TauriSource({ invoke, listen: slow as typeof listen }).streamText(HELLO, { signal: controller.signal })
    assert.equal((await failure(collected(stream)) as Error).message, 'enough')
  })

  it('may choose the id itself, or forget the last event', async () => {
    const chosen = kakeyaCommands(client, emit)
    const source = plugged((command, args = {}) => chosen(command, { ...args, streamId: command.endsWith('start') ? undefined : args.streamId }))
    assert.equal((await collected(source.streamText(HELLO))).join(''), GREETING)
    const cut = kakeyaCommands(client, (event, payload) => (payload === DONE ? undefined : emit(event, payload)))
    assert.ok(await failure(collected(plugged(cut).streamText(HELLO))) instanceof IncompleteStreamError)
    assert.equal(eventName('1'), 'kakeyalattice:1')
  })
})

describe('register', () => {
  it('gives the backend to the host application, if there is one', async () => {
    const registered: Backend[] = []
    Object.assign(globalThis, { AtomicChatCore: { registerBackend: (backend: Backend) => registered.push(backend) } })
    const backend = register(client)
    assert.deepEqual(registered, [backend])
    assert.equal(await backend.healthCheck(), true)
    Object.assign(globalThis, { AtomicChatCore: undefined })
    assert.equal(await register(new KakeyaClient({ baseUrl: 'http://127.0.0.1:9' })).healthCheck(), false)
    assert.equal(registered.length, 1)
  })
})
