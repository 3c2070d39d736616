export * from './client.js'
export * from './program.js'
export * from './server.js'
