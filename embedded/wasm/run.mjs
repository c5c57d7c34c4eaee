// usage: node run.mjs FILE.wasm
import { readFileSync } from "node:fs";

const { instance } = await WebAssembly.instantiate(readFileSync(process.argv[2]), {});
const failed = instance.exports.check();
console.log(failed === 0 ? "WebAssembly: every check passed" : `WebAssembly: ${failed} checks failed`);
process.exit(failed === 0 ? 0 : 1);
