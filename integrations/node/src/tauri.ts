import { ApiError, IncompleteStreamError, isRecord } from './errors.js'
import { Queue } from './queue.js'
import type {
  CallOptions, ChatCompletion, ChatCompletionRequest, Health, KakeyaSource, Model, Stats,
} from './types.js'

export const PLUGIN = 'plugin:kakeyalattice|'
/** The last event of a stream. */
export const DONE = '__DONE__'
/** How long a stream waits for a caller that listens only after it has started it. */
const LISTEN_MS = 30_000
/** How long the result of a stream is kept for its caller, and how long a caller waits for the last event. */
const KEPT_MS = 60_000
const LAST_MS = 2_000

export function eventName(streamId: string): string {
  return `kakeyalattice:${streamId}`
}

type Emit = (event: string, payload: string) => Promise<void> | void
type Invoke = (command: string, args?: Record<string, unknown>) => Promise<unknown>
type Listen = (event: string, handler: (event: { payload: string }) => void) => Promise<() => void>

/**
 * The plugin's side: return a function that carries out the plugin's commands, over a client and Tauri's `emit`.
 *
 * A caller that names a `streamId` listens already. For others, the first event waits until they call
 * `chat_completion_stream_wait`, so that they lose nothing.
 */
export function kakeyaCommands(source: KakeyaSource, emit: Emit): Invoke {
  const streams = new Map<string, PluginStream>()

  async function start(args: Record<string, unknown>): Promise<string> {
    const given = typeof args.streamId === 'string'
    const id = given ? (args.streamId as string) : crypto.randomUUID()
    // Tauri allows these in the name of an event.
    if (!/^[\w/:-]{1,64}$/.test(id) || streams.has(id)) throw new ApiError(`The stream id ${id.slice(0, 64)} cannot be used.`)
    const stream = new PluginStream(source, requestOf(args), (text) => emit(eventName(id), text))
    streams.set(id, stream)
    try {
      await stream.begin(given)
    } catch (error) {
      streams.delete(id)
      throw error
    }
    void stream.ended.catch(() => undefined).then(() => { later(() => { streams.delete(id) }, KEPT_MS) })
    return id
  }

  async function run(command: string, args: Record<string, unknown>): Promise<unknown> {
    switch (command) {
      case 'list_models': return { object: 'list', data: await source.listModels() }
      case 'chat_completion': return source.chatCompletion(requestOf(args))
      case 'chat_completion_stream_start': return start(args)
      case 'chat_completion_stream_wait': return streams.get(String(args.streamId))?.wait() ?? null
      case 'chat_completion_stream_cancel': streams.get(String(args.streamId))?.cancel(); return null
      case 'health': {
        const health = await source.health()
        return { ok: health.status !== 'failed', ...health }
      }
      case 'stats': return source.stats()
      default: throw new ApiError(`There is no command ${command.slice(0, 100)}.`)
    }
  }

  return async (command, args = {}) => {
    try {
      return await run(command.startsWith(PLUGIN) ? command.slice(PLUGIN.length) : command, args)
    } catch (error) {
      // Tauri carries JSON, and no errors.
      // eslint-disable-next-line @typescript-eslint/only-throw-error
      throw error instanceof ApiError ? error.toJSON() : { message: error instanceof Error ? error.message : String(error) }
    }
  }
}

function requestOf(args: Record<string, unknown>): ChatCompletionRequest {
  if (isRecord(args.request)) return args.request as ChatCompletionRequest
  throw new ApiError('The command has no request.')
}

/** Set a timer that does not keep the process running. */
function later(run: () => void, ms: number): ReturnType<typeof setTimeout> {
  const timer = setTimeout(run, ms)
  ;(timer as { unref?: () => void }).unref?.() // a number in a browser
  return timer
}

/** A stream of the plugin's side. */
class PluginStream {
  ended: Promise<null> = Promise.resolve(null)
  readonly #abort = new AbortController()
  readonly #text: AsyncIterator<string>
  readonly #emit: (text: string) => Promise<void> | void
  #listen: () => void = () => undefined

  constructor(source: KakeyaSource, request: ChatCompletionRequest, emit: (text: string) => Promise<void> | void) {
    this.#text = source.streamText(request, { signal: this.#abort.signal })[Symbol.asyncIterator]()
    this.#emit = emit
  }

  /** Wait for the first text, or the server's refusal. */
  async begin(isHeard: boolean): Promise<void> {
    const first = await this.#text.next()
    const heard = new Promise<void>((resolve) => { this.#listen = resolve })
    const timer = later(this.#listen, LISTEN_MS)
    if (isHeard) this.#listen()
    this.ended = heard.then(() => { clearTimeout(timer) }).then(() => this.#pass(first))
  }

  wait(): Promise<null> {
    this.#listen()
    return this.ended
  }

  cancel(): void {
    this.#listen()
    this.#abort.abort()
  }

  async #pass(first: IteratorResult<string>): Promise<null> {
    try {
      for (let each = first; each.done !== true; each = await this.#text.next()) {
        // An answer may contain the last event's text.
        const parts = each.value === DONE ? [DONE.slice(0, 4), DONE.slice(4)] : [each.value]
        for (const part of parts) await this.#emit(part)
      }
    } finally {
      this.#abort.abort()
      await this.#emit(DONE)
    }
    return null
  }
}

/** The web view's side: a source over the plugin's commands. Pass `invoke` and `listen` of `@tauri-apps/api`. */
export class TauriSource implements KakeyaSource {
  readonly #invoke: Invoke
  readonly #listen: Listen

  constructor(tauri: { invoke: Invoke; listen: Listen }) {
    this.#invoke = tauri.invoke
    this.#listen = tauri.listen
  }

  async health(): Promise<Health> {
    return (await this.#call('health')) as Health
  }

  async listModels(): Promise<Model[]> {
    return ((await this.#call('list_models')) as { data: Model[] }).data
  }

  async chatCompletion(request: ChatCompletionRequest): Promise<ChatCompletion> {
    return (await this.#call('chat_completion', { request: { ...request, stream: false } })) as ChatCompletion
  }

  async stats(): Promise<Stats> {
    return (await this.#call('stats')) as Stats
  }

  /** Yield the texts of an answer. It listens before the stream starts, so the first text is not lost. */
  async *streamText(request: ChatCompletionRequest, options: CallOptions = {}): AsyncGenerator<string, void, undefined> {
    const { signal } = options
    signal?.throwIfAborted()
    const streamId = crypto.randomUUID()
    const queue = new Queue<string>()
    const listen = (id: string): Promise<() => void> => this.#listen(eventName(id), (event) => { queue.put(event.payload) })
    const listening = [await listen(streamId)]
    const onAbort = (): void => { queue.fail(signal?.reason) }
    signal?.addEventListener('abort', onAbort, { once: true })
    if (signal?.aborted) onAbort() // while it began to listen
    const start = async (): Promise<void> => {
      const args = { request: { ...request, stream: true }, streamId }
      const id = await this.#call('chat_completion_stream_start', args)
      // Earlier plugins choose the id themselves.
      if (typeof id === 'string' && id !== streamId) listening.push(await listen(id))
      await this.#call('chat_completion_stream_wait', { streamId: id })
    }
    const ended = start()
    ended.then(
      () => { setTimeout(() => { queue.fail(new IncompleteStreamError('The stream ended without its last event.')) }, LAST_MS) },
      (error: unknown) => { queue.fail(error) },
    )
    let isOver = false
    try {
      for (let text = await queue.next(); text !== DONE; text = await queue.next()) {
        signal?.throwIfAborted()
        yield text
      }
      isOver = true
      await ended
    } finally {
      signal?.removeEventListener('abort', onAbort)
      for (const unlisten of listening) unlisten()
      if (!isOver) void this.#invoke(`${PLUGIN}chat_completion_stream_cancel`, { streamId }).catch(() => undefined)
    }
  }

  async #call(command: string, args?: Record<string, unknown>): Promise<unknown> {
    try {
      return await this.#invoke(PLUGIN + command, args)
    } catch (error) {
      throw error instanceof Error ? error : ApiError.of(error)
    }
  }
}
