// Runs the model of this folder under Node, on Dawn: npm install webgpu, then
//
//   node run.mjs [NAME=FILE ...] [--output DIR]
//
// Files hold elements as they lie in memory, row by row, little-endian. Inputs without a file are filled with numbers.
// With --output each result is written as NAME.bin.

import {mkdir, readFile, writeFile} from 'node:fs/promises';
import {join} from 'node:path';
import {ModelError, load} from './runtime.js';
import {arraysOf, count} from './tensors.js';
import {sample} from './samples.js';

async function gpu() {
    const found = await import('webgpu').catch(() => null);
    if (!found) throw new ModelError('webgpu', "The package 'webgpu' is not installed: npm install webgpu");
    Object.assign(globalThis, found.globals);
    return found.create([]);
}

async function inputsOf(model, files) {
    const given = {};
    for (const tensor of model.inputs) {
        const file = files.get(tensor.name);
        const [kind] = arraysOf(tensor.type);
        const bytes = file === undefined ? null : new Uint8Array(await readFile(file));
        given[tensor.name] = bytes === null ? sample(tensor) : new kind(bytes.buffer);
    }
    return given;
}

const files = new Map();
let output = null;
const words = process.argv.slice(2);
while (words.length) {
    const word = words.shift();
    if (word === '--output') output = words.shift();
    else files.set(word.slice(0, word.indexOf('=')), word.slice(word.indexOf('=') + 1));
}
let code = 0;
let dawn; // Dawn ends when nothing refers to it any more
try {
    dawn = await gpu();
    const model = await load(new URL('.', import.meta.url), {gpu: dawn, read: url => readFile(url)});
    console.log(`${model.name} on ${model.adapter.description || model.adapter.vendor}`);
    const found = await model.run(await inputsOf(model, files));
    for (const {name, type, shape} of model.outputs) {
        const more = count(shape) > 8 ? ', ...' : '';
        console.log(`${name}: ${type} [${shape.join(', ')}]: ${found[name].slice(0, 8).join(', ')}${more}`);
        if (output !== null) {
            await mkdir(output, {recursive: true});
            await writeFile(join(output, `${name.replaceAll('/', '_')}.bin`), new Uint8Array(found[name].buffer));
        }
    }
    model.destroy();
} catch (error) {
    if (!(error instanceof ModelError)) throw error;
    console.error(error.message);
    code = 1;
}
process.exit(code); // Dawn's threads would keep the process alive
