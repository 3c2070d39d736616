/*
KakeyaError
+-- ApiError               the server refused a request, or reported an error within a stream
+-- ConnectionError        the server cannot be reached, or the connection was lost
+-- IncompleteStreamError  a stream ended before the server said that it was complete
+-- TimedOutError          the server took longer than the caller allows
+-- StartError             the server could not be started
*/

export class KakeyaError extends Error {
  override name = 'KakeyaError'
}

/** The server's own error: an HTTP status (absent within a stream), a message, and a code for programs. */
export class ApiError extends KakeyaError {
  override name = 'ApiError'
  readonly status: number | undefined
  readonly code: string | null
  readonly type: string | null
  /** The field of the request that is wrong. */
  readonly param: string | null
  /** Seconds after which the same request may succeed. */
  readonly retryAfter: number | undefined

  constructor(message: string, about: Partial<Pick<ApiError, 'status' | 'code' | 'type' | 'param' | 'retryAfter'>> = {}) {
    super(message)
    this.status = about.status
    this.code = about.code ?? null
    this.type = about.type ?? null
    this.param = about.param ?? null
    this.retryAfter = about.retryAfter
  }

  /** Read an error from the JSON of an answer, an event or a Tauri command. */
  static of(body: unknown, status?: number, retryAfter?: number): ApiError {
    const error = isRecord(body) ? (body.error ?? body) : body
    if (!isRecord(error)) {
      const text = typeof error === 'string' && error !== '' ? shortened(error) : `The server answered with status ${status ?? 0}.`
      return new ApiError(text, { status, retryAfter })
    }
    const text = (name: string): string | null => (typeof error[name] === 'string' ? error[name] : null)
    const number = (name: string): number | undefined => (typeof error[name] === 'number' ? error[name] : undefined)
    const message = text('message') ?? shortened(JSON.stringify(error))
    return new ApiError(message, {
      status: status ?? number('status'),
      code: text('code'),
      type: text('type'),
      param: text('param'),
      retryAfter: retryAfter ?? number('retryAfter'),
    })
  }

  /** The form in which it crosses a process or a web view. */
  toJSON(): Record<string, unknown> {
    const { message, status, code, type, param, retryAfter } = this
    return { message, status, code, type, param, retryAfter }
  }
}

export class ConnectionError extends KakeyaError {
  override name = 'ConnectionError'
}

export class IncompleteStreamError extends KakeyaError {
  override name = 'IncompleteStreamError'
}

export class TimedOutError extends KakeyaError {
  override name = 'TimedOutError'
}

export class StartError extends KakeyaError {
  override name = 'StartError'
  /** The last lines that the program wrote. */
  readonly logs: readonly string[]

  constructor(message: string, logs: readonly string[] = [], options?: ErrorOptions) {
    super(logs.length > 0 ? `${message}\n${logs.slice(-10).join('\n')}` : message, options)
    this.logs = logs
  }
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function shortened(text: string): string {
  return text.length > 500 ? `${text.slice(0, 500)}…` : text
}
