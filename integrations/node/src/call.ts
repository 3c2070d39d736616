import { ConnectionError, TimedOutError } from './errors.js'

/** One exchange with the server: ended by its caller's signal, by a time limit, or by `end`. */
export class Call {
  readonly #controller = new AbortController()
  readonly #signal: AbortSignal | undefined
  readonly #timeoutMs: number
  readonly #onAbort = (): void => { this.#controller.abort(this.#signal?.reason) }
  #timer: ReturnType<typeof setTimeout> | undefined

  constructor(signal: AbortSignal | undefined, timeoutMs: number) {
    this.#signal = signal
    this.#timeoutMs = timeoutMs
    signal?.throwIfAborted()
    signal?.addEventListener('abort', this.#onAbort, { once: true })
    this.wait()
  }

  get signal(): AbortSignal {
    return this.#controller.signal
  }

  /** Begin to wait for the server. */
  wait(): void {
    this.pause()
    if (this.#timeoutMs <= 0 || this.#timeoutMs > 0x7fffffff) return
    this.#timer = setTimeout(() => {
      this.#controller.abort(new TimedOutError(`The server did not answer within ${this.#timeoutMs / 1000} s.`))
    }, this.#timeoutMs)
  }

  /** Wait for the caller, who may take any time. */
  pause(): void {
    clearTimeout(this.#timer)
  }

  /** Let go of the connection. What the server still does for it is cancelled. */
  end(): void {
    this.pause()
    this.#signal?.removeEventListener('abort', this.#onAbort)
    this.#controller.abort()
  }

  /** What to throw for an error of `fetch`: the signal's reason, a time limit, or a lost connection. */
  reason(error: unknown): unknown {
    if (this.#controller.signal.aborted) return this.#controller.signal.reason
    const cause = error instanceof Error ? (error.cause ?? error) : error
    const text = cause instanceof Error ? cause.message || ('code' in cause ? String(cause.code) : cause.name) : String(cause)
    return new ConnectionError(`The connection to the server failed: ${text}`, { cause: error })
  }
}
