/** Values on their way from events to a loop. */
export class Queue<T> {
  readonly #values: T[] = []
  #failure: { reason: unknown } | undefined
  #wake: () => void = () => undefined

  put(value: T): void {
    this.#values.push(value)
    this.#wake()
  }

  /** After the values that are here, `next` throws. Only the first failure counts. */
  fail(reason: unknown): void {
    this.#failure ??= { reason }
    this.#wake()
  }

  async next(): Promise<T> {
    for (;;) {
      const [value] = this.#values.splice(0, 1)
      if (value !== undefined) return value
      if (this.#failure) throw this.#failure.reason
      await new Promise<void>((resolve) => { this.#wake = resolve })
    }
  }
}
