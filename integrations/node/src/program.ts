import { accessSync, constants, statSync } from 'node:fs'
import { basename, delimiter, join } from 'node:path'

import { StartError } from './errors.js'

/** The second one is what earlier host applications set. */
const VARIABLES = ['KAKEYA_ENGINE', 'ATOMIC_CHAT_KAKEYA_SIDECAR_PATH']
const NAMES = ['kakeya-engine', 'kakeya-sidecar-mlx', 'kakeya-sidecar']

export interface ProgramOptions {
  /** The program, or the beginning of its command line: `['python3', '-P', '-m', 'engine', 'serve']`. */
  program?: string | readonly string[] | undefined
  /** Files to try before PATH, such as one that the application brings with it. */
  bundled?: readonly string[] | undefined
  /** Variables for the program, beside those of this process; undefined removes one. */
  env?: Readonly<Record<string, string | undefined>> | undefined
}

/** Return the beginning of the server's command line: from the options, a variable, a bundled file, or PATH. */
export function findProgram(options: ProgramOptions = {}): string[] {
  const { program, bundled = [] } = options
  const env = { ...process.env, ...options.env }
  if (program !== undefined) return typeof program === 'string' ? commandOf(program) : [...program]
  for (const name of VARIABLES) {
    const file = env[name]
    if (!file) continue
    if (isProgram(file)) return commandOf(file)
    throw new StartError(`The variable ${name} names ${file}, which is no program. Name kakeya-engine, or unset it.`)
  }
  const folders = (env.PATH ?? '').split(delimiter).filter((folder) => folder !== '')
  const found = [...bundled, ...NAMES.flatMap((name) => folders.map((folder) => join(folder, name)))].find(isProgram)
  if (found !== undefined) return commandOf(found)
  throw new StartError(`There is no ${NAMES[0] ?? ''} on PATH. Install it, or set ${VARIABLES[0] ?? ''} to its path.`)
}

/** The earlier names are the server itself; ours has commands. */
function commandOf(file: string): string[] {
  return basename(file) === NAMES[0] ? [file, 'serve'] : [file]
}

function isProgram(file: string): boolean {
  try {
    accessSync(file, constants.X_OK)
    return statSync(file).isFile()
  } catch {
    return false
  }
}
