const KEPT = 200
const LONGEST = 4096

/** The last lines of a program's output. */
export class Logs {
  readonly lines: string[] = []
  readonly #onLine: ((line: string) => void) | undefined

  constructor(onLine: ((line: string) => void) | undefined) {
    this.#onLine = onLine
  }

  add(line: string): void {
    this.lines.push(line)
    if (this.lines.length > KEPT) this.lines.shift()
    this.#onLine?.(line)
  }
}

/** Calls `onLine` for each line of a stream, and cuts lines that do not end. Reads to the end, so nobody is blocked. */
export function readLines(stream: NodeJS.ReadableStream, onLine: (line: string) => void): void {
  let rest = ''
  stream.setEncoding('utf8')
  stream.on('data', (piece: string) => {
    const lines = (rest + piece).split(/\r?\n/)
    rest = lines.pop() ?? ''
    if (rest.length > LONGEST) lines.push(rest)
    if (rest.length > LONGEST) rest = ''
    for (const line of lines) onLine(line.slice(0, LONGEST))
  })
  stream.on('end', () => {
    if (rest !== '') onLine(rest)
  })
  stream.on('error', () => undefined) // the program has ended
}
