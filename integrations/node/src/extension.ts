import { KakeyaClient } from './client.js'
import type { ChatCompletion, ChatCompletionRequest, KakeyaSource, Model, Stats } from './types.js'

/** The form in which host applications take a backend. */
export interface Backend {
  readonly id: string
  readonly displayName: string
  readonly kind: 'local' | 'cloud'
  listModels(): Promise<Model[]>
  chatCompletion(request: ChatCompletionRequest, signal?: AbortSignal): Promise<ChatCompletion>
  chatCompletionStream(
    request: ChatCompletionRequest,
    onDelta: (text: string) => void,
    signal?: AbortSignal,
  ): Promise<void>
  healthCheck(): Promise<boolean>
  getStats(): Promise<Stats>
}

/** A backend over a server, which is reached over HTTP or through Tauri. */
export class KakeyaBackend implements Backend {
  readonly id = 'kakeyalattice'
  readonly displayName = 'KakeyaLattice'
  readonly kind = 'local'
  readonly #source: KakeyaSource

  constructor(source: KakeyaSource = new KakeyaClient()) {
    this.#source = source
  }

  listModels(): Promise<Model[]> {
    return this.#source.listModels()
  }

  chatCompletion(request: ChatCompletionRequest, signal?: AbortSignal): Promise<ChatCompletion> {
    return this.#source.chatCompletion(request, { signal })
  }

  /** Stream an answer. An error of `onDelta`, as well as the signal, ends the answer on the server. */
  async chatCompletionStream(
    request: ChatCompletionRequest,
    onDelta: (text: string) => void,
    signal?: AbortSignal,
  ): Promise<void> {
    for await (const text of this.#source.streamText(request, { signal })) onDelta(text)
  }

  /** Whether the server answers, and can serve requests. */
  async healthCheck(): Promise<boolean> {
    try {
      const health = await this.#source.health()
      return typeof health.ok === 'boolean' ? health.ok : health.status !== 'failed'
    } catch {
      return false
    }
  }

  getStats(): Promise<Stats> {
    return this.#source.stats()
  }
}

/** Create a backend, and register it with the host application if there is one. */
export function register(source?: KakeyaSource): KakeyaBackend {
  const backend = new KakeyaBackend(source)
  const host = globalThis as { AtomicChatCore?: { registerBackend?: (backend: Backend) => void } }
  host.AtomicChatCore?.registerBackend?.(backend)
  return backend
}

export default register
