import { type IncomingMessage, type Server, type ServerResponse, createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'

import type { ChatCompletionRequest, KakeyaClient } from '../src/index.js'

/** A request whose answer goes on for long: tokens that end it are forbidden. */
export const LONG: ChatCompletionRequest = {
  model: 'tiny',
  messages: [{ role: 'user', content: 'import os' }],
  max_tokens: 4000,
  temperature: 0,
  logit_bias: { 0: -100, 2: -100 },
  x_kakeya: { draft: 'none' },
}

export const HELLO: ChatCompletionRequest = {
  model: 'tiny-chat',
  messages: [{ role: 'user', content: 'Hello.' }],
  temperature: 0,
}
export const GREETING = 'Hello! How can I help?'

/** Wait until something holds, for a minute at most. */
export async function until(check: () => Promise<boolean> | boolean): Promise<void> {
  const end = Date.now() + 60_000
  while (!(await check())) {
    if (Date.now() > end) throw new Error('it never happened')
    await sleep(20)
  }
}

/** How many answers the server ended because nobody waited for them. */
export async function cancelled(client: KakeyaClient, token: string): Promise<number> {
  const answer = await fetch(`${client.baseUrl}/metrics`, { headers: { authorization: `Bearer ${token}` } })
  return Number(/kakeya_answers_total\{reason="cancelled"\} (\S+)/.exec(await answer.text())?.[1] ?? 0)
}

export async function isIdle(client: KakeyaClient): Promise<boolean> {
  return (await client.stats()).active === 0
}

/** A server that does what ours would not: it cuts, stalls and splits its answers. */
export async function scripted(
  answer: (request: IncomingMessage, response: ServerResponse) => Promise<void> | void,
): Promise<{ url: string; server: Server }> {
  const server = createServer((request, response) => { void answer(request, response) })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, server }
}

/** The error of something that has to fail. */
export async function failure(work: Promise<unknown>): Promise<unknown> {
  try {
    await work
  } catch (error) {
    return error
  }
  throw new Error('it did not fail')
}

export async function collected<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = []
  for await (const item of items) found.push(item)
  return found
}

export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}
