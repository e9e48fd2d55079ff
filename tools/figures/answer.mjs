// answer.mjs -- answers requests by figures.wasm, for tests/test_fig_wasm.c.
//
//   node tools/figures/answer.mjs figures.wasm REQUESTS ANSWERS
//
// REQUESTS and ANSWERS are strings that end with a zero byte, one after another. Each request is answered by a fresh
// instance and again by one that has answered all before it. Exits with 1 where the module imports something, or where
// the two answers differ.
import { readFileSync, writeFileSync } from 'node:fs';

const [wasm, from, to] = process.argv.slice(2);
const module = new WebAssembly.Module(readFileSync(wasm));
const imports = WebAssembly.Module.imports(module);
if (imports.length > 0) {
    console.error('figures.wasm imports ' + imports.map((i) => `${i.module}.${i.name}`).join(', ') + ': expected nothing');
    process.exit(1);
}
const open = () => {
    const { exports } = new WebAssembly.Instance(module, {});
    exports._initialize?.();
    return exports;
};

function answer(c, request) {
    const at = c.malloc(request.length + 1);
    let memory = new Uint8Array(c.memory.buffer);
    memory.set(request, at);
    memory[at + request.length] = 0;
    const text = c.fig_request(at);
    memory = new Uint8Array(c.memory.buffer); // it may have grown
    const bytes = Buffer.from(memory.slice(text, memory.indexOf(0, text)));
    c.free(text);
    c.free(at);
    return bytes;
}

const all = readFileSync(from), answers = [], used = open();
for (let at = 0; at < all.length;) {
    const end = all.indexOf(0, at), request = all.subarray(at, end);
    const bytes = answer(used, request);
    if (!bytes.equals(answer(open(), request))) {
        console.error(`request ${answers.length}: a used instance answers otherwise than a fresh one`);
        process.exit(1);
    }
    answers.push(bytes, Buffer.of(0));
    at = end + 1;
}
writeFileSync(to, Buffer.concat(answers));
