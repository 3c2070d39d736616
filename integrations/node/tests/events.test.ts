import assert from 'node:assert/strict'
import { test } from 'node:test'

import { events } from '../src/events.js'
import { collected } from './world.js'

async function* inPieces(bytes: Uint8Array, size: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += size) yield await Promise.resolve(bytes.slice(at, at + size))
}

const read = (text: string, size = 1): Promise<string[]> => collected(events(inPieces(new TextEncoder().encode(text), size)))

test('events are the same however their bytes are split, and with each kind of line end', async () => {
  for (const end of ['\n', '\r\n', '\r']) {
    const lines = ['\u{feff}: keep-alive', '', 'event: x', 'data: {"a":"é€😀\u2028"}', '', 'id: 1', 'data:b', 'data: c', '', 'data', '', 'data: [DONE]', '', '']
    for (let size = 1; size < 24; size++) {
      const found = await read(lines.join(end), size)
      assert.deepEqual(found, ['{"a":"é€😀\u2028"}', 'b\nc', '', '[DONE]'], `${JSON.stringify(end)} ${size}`)
    }
  }
})

test('an event that is cut off, comments and unknown fields are no events', async () => {
  assert.deepEqual(await read(': ping\n\nretry: 5\n\ndatabase: x\n\ndata: whole\n\ndata: half\n'), ['whole'])
  assert.deepEqual(await read(''), [])
})

test('an event without an end is refused before it fills the memory', async () => {
  async function* endless(): AsyncGenerator<Uint8Array> {
    yield new TextEncoder().encode('data: ')
    for (;;) yield await Promise.resolve(new Uint8Array(8 << 20).fill(65))
  }
  await assert.rejects(collected(events(endless())), /more than 16777216 characters/)
})
