// Calls tools with the official SDK for TypeScript: node sdk.mjs COMMAND CALLS PACKAGE, two in JSON. Prints one line a call.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const load = (name) => import(pathToFileURL(createRequire(`${process.cwd()}/`).resolve(name)).href);
// The second version of the SDK has a package for clients alone.
const [main, stdio] = process.argv[4] === "@modelcontextprotocol/client"
  ? ["@modelcontextprotocol/client", "@modelcontextprotocol/client/stdio"]
  : ["@modelcontextprotocol/sdk/client/index.js", "@modelcontextprotocol/sdk/client/stdio.js"];
const { Client } = await load(main);
const { StdioClientTransport } = await load(stdio);

const [command, ...args] = JSON.parse(process.argv[2]);
const client = new Client({ name: "test", version: "1" });
await client.connect(new StdioClientTransport({ command, args, env: process.env, stderr: "inherit" }));
// The client learns here which schemas answers must fit.
const { tools } = await client.listTools();
console.log(JSON.stringify(tools.map((tool) => tool.name)));
for (const [name, given] of JSON.parse(process.argv[3])) {
  try {
    const { isError = false, content, structuredContent = null } = await client.callTool({ name, arguments: given });
    console.log(JSON.stringify({ name, isError, text: content[0].text, structured: structuredContent }));
  } catch (error) {
    console.log(JSON.stringify({ name, threw: error.message }));
  }
}
await client.close();
