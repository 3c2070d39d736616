// What all scripts here ask for: node SCRIPT.mjs URL. A script that ends with 0 got it.
import { z } from "zod";

export const url = process.argv[2];
export const model = "tiny-chat";
export const count = "Count from 1 to 5.";
export const counted = "1, 2, 3, 4, 5";
export const weather = "What is the weather in San Francisco?";
export const place = { location: "San Francisco" };
export const introduction = "My name is Alice.";
export const person = z.object({ name: z.string() });
export const tool = {
  name: "get_weather",
  description: "Get the weather of a city.",
  parameters: { type: "object", properties: { location: { type: "string" } }, required: ["location"] },
};
// This model writes code until its limit: nobody waits for the end of that.
export const endless = { model: "tiny", prompt: "def main(argv):\n", limit: 3900 };
