import { Call } from './call.js'
import { ApiError, IncompleteStreamError, KakeyaError, isRecord } from './errors.js'
import { events } from './events.js'
import type {
  CallOptions, ChatCompletion, ChatCompletionChunk, ChatCompletionRequest, Health, KakeyaSource, Model, Stats,
} from './types.js'

export * from './errors.js'
export type * from './types.js'

/** The server's own limit for a request is ten minutes. */
const ANSWER_MS = 610_000
/** Within this time, a stream shows a sign of life: the server sends one each five seconds. */
const QUIET_MS = 60_000
const SHORT_MS = 10_000

export interface ClientOptions {
  /** Address of the server, with or without `/v1`. */
  baseUrl?: string | undefined
  /** The API key, or the token of `--token-file`. */
  token?: string | undefined
}

/** A client for a running server. */
export class KakeyaClient implements KakeyaSource {
  readonly baseUrl: string
  readonly #headers: Record<string, string>

  constructor(options: ClientOptions = {}) {
    this.baseUrl = rootOf(options.baseUrl ?? 'http://127.0.0.1:1339')
    const token = options.token?.trim() ?? '' // a file ends with a line end
    if (!/^[\x20-\x7e]*$/.test(token)) throw new KakeyaError('The token has characters that no header can carry.')
    this.#headers = token === '' ? {} : { authorization: `Bearer ${token}` }
  }

  /** The server's state. It is returned, and not thrown, if the server says that it can serve no request. */
  async health(options: CallOptions = {}): Promise<Health> {
    return (await this.#json('/health', undefined, options, (status) => status === 200 || status === 503)) as Health
  }

  async listModels(options: CallOptions = {}): Promise<Model[]> {
    const list = (await this.#json('/v1/models', undefined, options)) as { data?: Model[] }
    if (!Array.isArray(list.data)) throw ApiError.of(list)
    return list.data
  }

  async stats(options: CallOptions = {}): Promise<Stats> {
    return (await this.#json('/v1/kakeya/stats', undefined, options)) as Stats
  }

  /** Return a whole answer. */
  async chatCompletion(request: ChatCompletionRequest, options: CallOptions = {}): Promise<ChatCompletion> {
    const limits = { ...options, timeoutMs: options.timeoutMs ?? ANSWER_MS }
    return (await this.#json('/v1/chat/completions', { ...request, stream: false }, limits)) as ChatCompletion
  }

  /**
   * Yield the pieces of an answer as they come. Leaving the loop, or the signal, ends the answer on the server.
   *
   * @throws ApiError for a refusal, also in the middle; IncompleteStreamError if the stream is cut off.
   */
  async *chatCompletionStream(
    request: ChatCompletionRequest,
    options: CallOptions = {},
  ): AsyncGenerator<ChatCompletionChunk, void, undefined> {
    const call = new Call(options.signal, options.timeoutMs ?? QUIET_MS)
    try {
      const response = await this.#send(call, '/v1/chat/completions', { ...request, stream: true })
      for await (const data of events(pieces(call, response))) {
        if (data === '[DONE]') return
        const chunk = parsed(data)
        if (!isRecord(chunk) || hasError(chunk) || !Array.isArray(chunk.choices)) throw ApiError.of(chunk)
        yield chunk as unknown as ChatCompletionChunk
        if (call.signal.aborted) throw call.signal.reason
      }
      throw new IncompleteStreamError('The stream ended before the answer was complete.')
    } finally {
      call.end()
    }
  }

  /** Yield the text of the first choice of a streamed answer. */
  async *streamText(request: ChatCompletionRequest, options: CallOptions = {}): AsyncGenerator<string, void, undefined> {
    for await (const chunk of this.chatCompletionStream(request, options)) {
      const text = chunk.choices.find((choice) => choice.index === 0)?.delta.content
      if (text) yield text
    }
  }

  async #json(path: string, body: unknown, options: CallOptions, allowed = isSuccess): Promise<unknown> {
    const call = new Call(options.signal, options.timeoutMs ?? SHORT_MS)
    try {
      const response = await this.#send(call, path, body, allowed)
      const answer = parsed(await text(call, response))
      if (isRecord(answer) && !hasError(answer)) return answer
      throw ApiError.of(answer, response.status)
    } finally {
      call.end()
    }
  }

  /** Send a request, and return the answer if its status is allowed; throw ApiError if not. */
  async #send(call: Call, path: string, body: unknown, allowed = isSuccess): Promise<Response> {
    const init = body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) }
    const headers = { ...this.#headers, ...(body === undefined ? {} : { 'content-type': 'application/json' }) }
    let response: Response
    try {
      response = await fetch(this.baseUrl + path, { ...init, headers, signal: call.signal })
    } catch (error) {
      throw call.reason(error)
    }
    if (allowed(response.status)) return response
    const after = Number(response.headers.get('retry-after') ?? NaN)
    throw ApiError.of(parsed(await text(call, response)), response.status, Number.isFinite(after) ? after : undefined)
  }
}

/** Return the address without `/v1`. Errors do not quote it, because it may contain a password. */
function rootOf(address: string): string {
  if (!URL.canParse(address)) throw new KakeyaError('The address of the server is no URL. Write it like http://127.0.0.1:1339.')
  const { protocol, username, password, origin, pathname } = new URL(address)
  if (!/^https?:$/.test(protocol) || username || password) {
    throw new KakeyaError('The address of the server must begin with http:// or https://, and hold no password. Use `token`.')
  }
  return (origin + pathname).replace(/\/+$/, '').replace(/\/v1$/, '')
}

function hasError(answer: Record<string, unknown>): boolean {
  return answer.error !== undefined && answer.error !== null
}

function isSuccess(status: number): boolean {
  return status >= 200 && status < 300
}

async function text(call: Call, response: Response): Promise<string> {
  try {
    return await response.text()
  } catch (error) {
    throw call.reason(error)
  }
}

/** Yield the bytes of an answer. Time counts only while waiting for the server. */
async function* pieces(call: Call, response: Response): AsyncGenerator<Uint8Array, void, undefined> {
  const reader = response.body?.getReader()
  for (;;) {
    let piece: Awaited<ReturnType<ReadableStreamDefaultReader<Uint8Array>['read']>> | undefined
    call.wait()
    try {
      piece = await reader?.read()
    } catch (error) {
      throw call.reason(error)
    }
    call.pause()
    if (piece?.value === undefined) return
    yield piece.value
  }
}

/** Return the value of JSON, or the text itself if it is none. */
function parsed(json: string): unknown {
  try {
    return JSON.parse(json)
  } catch {
    return json
  }
}
