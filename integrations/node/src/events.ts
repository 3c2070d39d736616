import { KakeyaError } from './errors.js'

/** Most characters of one event. */
const MOST = 16 << 20

/** Yields the data of server-sent events, however the bytes are split. An event that is cut off at the end is dropped. */
export async function* events(bytes: AsyncIterable<Uint8Array>): AsyncGenerator<string, void, undefined> {
  const decoder = new TextDecoder() // drops a byte order mark, and keeps the first bytes of a character for later
  const event = new Event()
  let rest = ''
  for await (const piece of bytes) {
    rest += decoder.decode(piece, { stream: true })
    // A carriage return at the end may be the first half of a line end.
    const lines = rest.split(/\r\n|\n|\r(?!$)/)
    rest = lines.pop() ?? ''
    for (const line of lines) yield* event.take(line)
    if (rest.length + event.size > MOST) throw new KakeyaError(`An event of the stream has more than ${MOST} characters.`)
  }
  if (rest.endsWith('\r')) yield* event.take(rest.slice(0, -1))
}

class Event {
  #data: string[] = []
  size = 0;

  /** Take a line, and yield the event that it completes. */
  *take(line: string): Generator<string, void, undefined> {
    if (line === '' && this.#data.length > 0) {
      yield this.#data.join('\n')
      this.#data = []
      this.size = 0
    } else if (line === 'data' || line.startsWith('data:')) {
      const value = line.slice(5).replace(/^ /, '')
      this.#data.push(value)
      this.size += value.length + 1
    }
  }
}
