import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmod, mkdir, mkdtemp, readFile, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { after, before, describe, it } from 'node:test'
import { fileURLToPath } from 'node:url'

import { StartError, findProgram, startServer } from '../src/index.js'
import { GREETING, HELLO, LONG, failure, isAlive, until } from './world.js'

const ENGINE = process.env.KAKEYA_ENGINE ?? 'kakeya-engine'
let folder: string

before(async () => { folder = await mkdtemp(join(tmpdir(), 'kakeya-test-')) })
after(() => rm(folder, { recursive: true }))

async function script(name: string, text: string): Promise<string> {
  const file = join(folder, name)
  await writeFile(file, `#!/bin/sh\n${text}\n`)
  await chmod(file, 0o755)
  return file
}

describe('findProgram', () => {
  const bare = { KAKEYA_ENGINE: undefined, ATOMIC_CHAT_KAKEYA_SIDECAR_PATH: undefined, PATH: '' }

  it('takes the option, a variable, a bundled file, and PATH, in this order', async () => {
    await mkdir(join(folder, 'bin'))
    const engine = await script('kakeya-engine', 'exit')
    const sidecar = await script('kakeya-sidecar-mlx', 'exit')
    const onPath = await script('bin/kakeya-sidecar', 'exit')
    const PATH = `:${join(folder, 'absent')}:${join(folder, 'bin')}`
    assert.deepEqual(findProgram({ env: { ...bare, PATH } }), [onPath])
    assert.deepEqual(findProgram({ env: { ...bare, PATH: `${PATH}:${folder}` } }), [engine, 'serve'])
    assert.deepEqual(findProgram({ bundled: ['/absent', sidecar], env: { ...bare, PATH } }), [sidecar])
    const env = { ...bare, PATH, ATOMIC_CHAT_KAKEYA_SIDECAR_PATH: onPath }
    assert.deepEqual(findProgram({ bundled: [sidecar], env }), [onPath])
    assert.deepEqual(findProgram({ bundled: [sidecar], env: { ...env, KAKEYA_ENGINE: engine } }), [engine, 'serve'])
    assert.deepEqual(findProgram({ program: ['python3', '-m', 'engine', 'serve'], env }), ['python3', '-m', 'engine', 'serve'])
    assert.deepEqual(findProgram({ program: sidecar, env: { ...env, KAKEYA_ENGINE: '' } }), [sidecar])
  })

  it('says what to do if there is none, or a variable names none', () => {
    assert.throws(() => findProgram({ env: bare }), /There is no kakeya-engine on PATH\. Install it, or set KAKEYA_ENGINE/)
    for (const file of ['/absent', folder]) {
      assert.throws(() => findProgram({ env: { ...bare, KAKEYA_ENGINE: file } }), /KAKEYA_ENGINE names .* no program/)
    }
  })
})

describe('startServer', () => {
  it('starts servers side by side, with logs, and leaves nothing behind', async () => {
    const before = await leftovers()
    const lines: string[] = []
    const wrapper = await script('wrapper', `echo from the wrapper >&2\n"${ENGINE}" serve "$@"`) // not exec: one more process
    const [one, other] = await Promise.all([
      startServer({ onLog: (line) => lines.push(line) }),
      startServer({ program: wrapper, args: ['--max-tokens', '2'] }),
    ])
    assert.notEqual(one.address, other.address)
    assert.deepEqual(await leftovers(), before)
    assert.equal((await one.client.chatCompletion(HELLO)).choices[0]?.message.content, GREETING)
    assert.equal((await other.client.chatCompletion(HELLO)).usage.completion_tokens, 2)
    assert.ok(other.logs.includes('from the wrapper'))
    assert.deepEqual(await one.stop(), { code: 0, signal: null })
    assert.deepEqual(await one.stop(), { code: 0, signal: null })
    assert.deepEqual(lines, [...one.logs])
    await other.stop()
    await until(() => !isAlive(one.pid) && !isAlive(other.pid))
  })

  it('ends the server although an answer is running, and tells that it was killed', async () => {
    const [busy, killed] = await Promise.all([startServer({ models: ['tiny'], stopTimeoutMs: 200 }), startServer()])
    await busy.client.chatCompletionStream(LONG).next()
    assert.deepEqual(await busy.stop(), { code: null, signal: 'SIGKILL' })
    process.kill(killed.pid, 'SIGKILL')
    assert.deepEqual(await killed.wait(), { code: null, signal: 'SIGKILL' })
    assert.equal((await failure(killed.client.health()) as Error).name, 'ConnectionError')
  })

  it('leaves no server, however its process ends', async () => {
    const index = fileURLToPath(new URL('../src/index.js', import.meta.url))
    // Nothing keeps the second process running: its server must not.
    await Promise.all(['setInterval(() => undefined, 1000)', ''].map(async (more) => {
      const code = `import { startServer } from ${JSON.stringify(index)}
        const server = await startServer()
        console.log(server.pid)
        ${more}`
      const argv = ['--input-type=module', '--eval', code]
      const host = spawn(process.execPath, argv, { stdio: ['ignore', 'pipe', 'inherit'] })
      const exited = once(host, 'exit')
      const [line] = await once(createInterface(host.stdout), 'line') as [string]
      if (more) host.kill('SIGKILL')
      assert.deepEqual(await exited, more ? [null, 'SIGKILL'] : [0, null])
      await until(() => !isAlive(Number(line)))
    }))
  })

  it('says why a program cannot be started, and leaves none running', async () => {
    const hangs = await script('hangs', `echo $$ >"${folder}/pid"\necho waiting >&2\nexec sleep 600`)
    const cases: [string, RegExp][] = [
      [join(folder, 'absent'), /cannot be started: .*ENOENT/],
      [await script('fails', 'echo no such model >&2; exit 2'), /ended before it answered \(exit code 2\)\.\nno such model/],
      [await script('other', 'echo http://127.0.0.1:1; exec sleep 600'), /printed no ready line, but: http:/],
      [hangs, /did not answer within 1 s\.\nwaiting/],
      [await script('lies', `echo '{"address":"http://127.0.0.1:1","pid":'$$'}'; exec sleep 600`), /cannot be used: Error: ENOENT/],
    ]
    for (const [program, message] of cases) {
      const error = await failure(startServer({ program, startTimeoutMs: 1000 }))
      assert.ok(error instanceof StartError, String(error))
      assert.match(error.message, message)
    }
    assert.ok(!isAlive(Number(await readFile(join(folder, 'pid'), 'utf8'))))
    const reason = new Error('enough')
    const started = startServer({ program: hangs, signal: AbortSignal.timeout(200) })
    assert.equal((await failure(started) as Error).name, 'TimeoutError')
    assert.equal(await failure(startServer({ signal: AbortSignal.abort(reason) })), reason)
  })

  it("passes the server's own refusal on", async () => {
    const error = await failure(startServer({ models: ['no-such-model'] }))
    assert.ok(error instanceof StartError)
    assert.match(error.message, /exit code 2.*there is no folder no-such-model/s)
  })
})

async function leftovers(): Promise<string[]> {
  return (await readdir(tmpdir())).filter((name) => /^kakeya-\w{6}$/.test(name)).sort()
}
