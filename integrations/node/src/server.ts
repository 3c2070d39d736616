import { type ChildProcessByStdio, spawn } from 'node:child_process'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'

import { KakeyaClient } from './client.js'
import { KakeyaError, StartError, isRecord } from './errors.js'
import { Logs, readLines } from './logs.js'
import { type ProgramOptions, findProgram } from './program.js'

const POLL_MS = 100

export interface StartOptions extends ProgramOptions {
  /** Models to serve: names, folders or hub ids. */
  models?: readonly string[] | undefined
  /** Further options of `kakeya-engine serve`. */
  args?: readonly string[] | undefined
  cwd?: string | undefined
  /** Milliseconds until the server must answer. */
  startTimeoutMs?: number | undefined
  /** Milliseconds that `stop` waits for running answers. */
  stopTimeoutMs?: number | undefined
  /** Called for each line that the server logs. */
  onLog?: ((line: string) => void) | undefined
  /** Gives up the start. */
  signal?: AbortSignal | undefined
}

export interface Exit {
  code: number | null
  signal: NodeJS.Signals | null
}

type Child = ChildProcessByStdio<null, Readable, Readable>

/** A server that this process has started. It ends with this process, however this process ends. */
export class RunningServer {
  readonly #child: Child
  readonly #exited: Promise<Exit>
  readonly #stopTimeoutMs: number
  readonly #logs: Logs
  #isOver = false

  constructor(
    child: Child,
    exited: Promise<Exit>,
    logs: Logs,
    stopTimeoutMs: number,
    /** The process that serves; another one than the child if the program is a wrapper. */
    readonly pid: number,
    readonly token: string,
    readonly client: KakeyaClient,
  ) {
    this.#child = child
    this.#exited = exited
    void exited.then(() => { this.#isOver = true })
    this.#logs = logs
    this.#stopTimeoutMs = stopTimeoutMs
  }

  get address(): string {
    return this.client.baseUrl
  }

  /** The last lines that the server logged. */
  get logs(): readonly string[] {
    return this.#logs.lines
  }

  /** Wait until the server has ended, for whatever reason. Otherwise it does not keep this process running. */
  wait(): Promise<Exit> {
    this.#child.ref()
    return this.#exited
  }

  /** End the server: running answers may go on for a while. Returns when it has ended. */
  async stop(): Promise<Exit> {
    this.#end('SIGTERM')
    const timer = setTimeout(() => { this.#end('SIGKILL') }, this.#stopTimeoutMs)
    try {
      return await this.wait()
    } finally {
      clearTimeout(timer)
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop()
  }

  #end(signal: NodeJS.Signals): void {
    if (this.#isOver) return
    if (this.pid !== this.#child.pid) kill(this.pid, signal)
    this.#child.kill(signal)
  }
}

/**
 * Start a server on a free port of this machine, and return it when it answers.
 *
 * @throws StartError if there is no program, or it does not answer in time; it has ended then.
 */
export async function startServer(options: StartOptions = {}): Promise<RunningServer> {
  if (process.platform === 'win32') throw new StartError('The server does not run on Windows. Start it in WSL.')
  options.signal?.throwIfAborted()
  const [program = '', ...first] = findProgram(options)
  const folder = await mkdtemp(join(tmpdir(), 'kakeya-'))
  try {
    const token = join(folder, 'token')
    const argv = [
      ...first, '--port', '0', '--print-ready', '--parent-pid', String(process.pid), '--token-file', token,
      ...(options.models ?? []).flatMap((model) => ['--model', model]), ...(options.args ?? []),
    ]
    const env = { ...process.env, ...options.env }
    const child = spawn(program, argv, { stdio: ['ignore', 'pipe', 'pipe'], env, cwd: options.cwd })
    return await begun(child, program, token, options)
  } finally {
    await rm(folder, { recursive: true, force: true }) // both sides have read the token
  }
}

async function begun(child: Child, program: string, file: string, options: StartOptions): Promise<RunningServer> {
  const { startTimeoutMs = 30_000, stopTimeoutMs = 10_000, signal } = options
  const logs = new Logs(options.onLog)
  const exited = new Promise<Exit>((resolve) => {
    child.once('close', (code, name) => { resolve({ code, signal: name }) })
  })
  const limit = AbortSignal.timeout(startTimeoutMs)
  const watched = signal === undefined ? limit : AbortSignal.any([limit, signal])
  let pid = child.pid
  try {
    const line = await Promise.race([readyLine(child, program, logs), ended(exited, program, logs), aborted(watched)])
    const ready = parsed(line, program, logs)
    pid = ready.pid
    const token = (await readFile(file, 'utf8')).trim()
    const client = new KakeyaClient({ baseUrl: ready.address, token })
    await Promise.race([answering(client, watched), ended(exited, program, logs), aborted(watched)])
    child.unref()
    for (const pipe of [child.stdout, child.stderr]) if (pipe instanceof Socket) pipe.unref()
    return new RunningServer(child, exited, logs, stopTimeoutMs, ready.pid, token, client)
  } catch (error) {
    if (pid !== undefined && pid !== child.pid) kill(pid, 'SIGKILL')
    if (child.kill('SIGKILL')) await exited
    if (signal?.aborted || error instanceof KakeyaError) throw error
    const reason = limit.aborted ? `did not answer within ${startTimeoutMs / 1000} s` : `cannot be used: ${String(error)}`
    throw new StartError(`${program} ${reason}.`, logs.lines, { cause: error })
  }
}

/** Return the first line on standard output; log all other lines. */
function readyLine(child: Child, program: string, logs: Logs): Promise<string> {
  return new Promise((resolve, reject) => {
    let isFirst = true
    child.once('error', (error) => { reject(new StartError(`${program} cannot be started: ${error.message}`)) })
    readLines(child.stderr, (line) => { logs.add(line) })
    readLines(child.stdout, (line) => {
      if (isFirst) resolve(line)
      else logs.add(line)
      isFirst = false
    })
  })
}

function parsed(line: string, program: string, logs: Logs): { address: string; pid: number } {
  try {
    const ready: unknown = JSON.parse(line)
    if (isRecord(ready) && typeof ready.address === 'string' && typeof ready.pid === 'number') {
      return { address: ready.address, pid: ready.pid }
    }
  } catch {
    // reported below
  }
  throw new StartError(`${program} printed no ready line, but: ${line.slice(0, 200)}`, logs.lines)
}

/** Wait until the server answers. It does so from the ready line on, unless no model can be loaded. */
async function answering(client: KakeyaClient, signal: AbortSignal): Promise<void> {
  for (;;) {
    const health = await client.health({ signal }).catch(() => undefined)
    signal.throwIfAborted()
    if (health !== undefined && health.status !== 'failed') return
    await sleep(POLL_MS, undefined, { signal })
  }
}

async function ended(exited: Promise<Exit>, program: string, logs: Logs): Promise<never> {
  const { code, signal } = await exited
  throw new StartError(`${program} ended before it answered (${signal ?? `exit code ${code ?? -1}`}).`, logs.lines)
}

function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    signal.addEventListener('abort', () => { reject(signal.reason as Error) }, { once: true })
  })
}

function kill(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal)
  } catch {
    // it has ended
  }
}
