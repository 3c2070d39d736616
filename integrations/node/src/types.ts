/** A turn of a conversation. */
export interface ChatMessage {
  role: 'system' | 'developer' | 'user' | 'assistant' | 'tool'
  content: string | Record<string, unknown>[] | null
  name?: string
  tool_calls?: Record<string, unknown>[]
  tool_call_id?: string
}

/** A request for a chat completion. Fields that are not listed here are sent as they are. */
export interface ChatCompletionRequest {
  model: string
  messages: ChatMessage[]
  max_tokens?: number
  temperature?: number
  top_p?: number
  seed?: number
  stop?: string | string[]
  n?: number
  tools?: Record<string, unknown>[]
  tool_choice?: string | Record<string, unknown>
  response_format?: Record<string, unknown>
  stream_options?: { include_usage?: boolean; continuous_usage_stats?: boolean }
  /** Which cache and drafter to use for this answer. */
  x_kakeya?: { cache?: string; draft?: string; boundary?: number; prefix?: boolean; token_ids?: boolean }
  [field: string]: unknown
}

export interface Usage {
  prompt_tokens: number
  completion_tokens: number
  total_tokens: number
}

/** How an answer was made: the cache, the drafter, rounds, speeds. */
export type Report = Record<string, unknown>

export interface ChatCompletion {
  id: string
  object: 'chat.completion'
  created: number
  model: string
  choices: {
    index: number
    message: {
      role: 'assistant'
      content: string | null
      reasoning_content?: string | null
      tool_calls?: Record<string, unknown>[]
    }
    finish_reason: string | null
  }[]
  usage: Usage
  x_kakeya?: Report
}

export interface ChatCompletionChunk {
  id: string
  object: 'chat.completion.chunk'
  created: number
  model: string
  choices: {
    index: number
    delta: {
      role?: string
      content?: string | null
      reasoning_content?: string | null
      tool_calls?: Record<string, unknown>[]
    }
    finish_reason: string | null
    x_kakeya?: Report
  }[]
  usage?: Usage | null
}

export interface Model {
  id: string
  object: 'model'
  created?: number
  owned_by: string
  /** What the server knows of the model: its channels, what is on the disk, published figures. */
  x_kakeya: Record<string, unknown>
}

export interface Health {
  status: 'ok' | 'loading' | 'degraded' | 'failed'
  /** Why no request can be served; null if requests can be. */
  reason: string | null
  [field: string]: unknown
}

export type Stats = Record<string, unknown>

/** Limits of one call. */
export interface CallOptions {
  /** Ends the call, and its work on the server. The call then throws the signal's reason. */
  signal?: AbortSignal | undefined
  /** Milliseconds for the whole answer, or, of a stream, without a sign of life. 0 means no limit. */
  timeoutMs?: number | undefined
}

/** What an application needs of a server, whether it is reached over HTTP or through Tauri. */
export interface KakeyaSource {
  health(options?: CallOptions): Promise<Health>
  listModels(options?: CallOptions): Promise<Model[]>
  chatCompletion(request: ChatCompletionRequest, options?: CallOptions): Promise<ChatCompletion>
  streamText(request: ChatCompletionRequest, options?: CallOptions): AsyncIterableIterator<string>
  stats(options?: CallOptions): Promise<Stats>
}
