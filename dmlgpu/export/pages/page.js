// Shows the folder's model working: what it takes, what it gives, how long that takes.

import {ModelError, load} from './runtime.js';
import {arraysOf, count} from './tensors.js';
import {pictureSizes, sample} from './samples.js';

const MAX_SHOWN = 12;
const byId = id => document.getElementById(id);

function element(kind, text = '', ...children) {
    const made = document.createElement(kind);
    made.textContent = text;
    made.append(...children);
    return made;
}

const sizes = ({type, shape}) => `${type} [${shape.join(', ')}]`;

function tell(text, isBad = false) {
    byId('state').textContent = text;
    byId('state').className = isBad ? 'bad' : '';
}

// The page goes on after what the runtime says; anything else is a fault of the page, and shown in the console, too.
async function telling(action) {
    try {
        await action();
    } catch (error) {
        tell(error instanceof ModelError ? error.message : String(error), true);
        if (!(error instanceof ModelError)) throw error;
    }
}

function drawPicture([height, width], elements) {
    const canvas = Object.assign(document.createElement('canvas'), {width, height});
    const pixels = new Uint8ClampedArray(4 * height * width).fill(255);
    for (let at = 0; at < height * width; at++) pixels.set(elements.subarray(3 * at, 3 * at + 3), 4 * at);
    canvas.getContext('2d').putImageData(new ImageData(pixels, width, height), 0, 0);
    return canvas;
}

// A picture's file, cut to the sizes of an input.
async function readPicture(file, [height, width]) {
    const picture = await createImageBitmap(file);
    const canvas = new OffscreenCanvas(width, height);
    const scale = Math.max(width / picture.width, height / picture.height);
    const [wide, high] = [picture.width * scale, picture.height * scale];
    const context = canvas.getContext('2d');
    context.drawImage(picture, (width - wide) / 2, (height - high) / 2, wide, high);
    const {data} = context.getImageData(0, 0, width, height);
    return new Uint8Array(height * width * 3).map((_, at) => data[4 * Math.floor(at / 3) + at % 3]);
}

function numbers(elements) {
    const shown = Array.from(elements.slice(0, MAX_SHOWN), value => (
        typeof value === 'bigint' || Number.isInteger(value) ? String(value) : value.toPrecision(6)));
    return shown.join(', ') + (elements.length > MAX_SHOWN ? ', ...' : '');
}

function show(tensor, elements) {
    const picture = pictureSizes(tensor);
    const figure = element('figure', '', element('figcaption', `${tensor.name}: ${sizes(tensor)}`));
    figure.append(picture ? drawPicture(picture, elements) : element('code', numbers(elements)));
    return figure;
}

function showInputs(inputs, given) {
    byId('inputs').replaceChildren(...inputs.map(tensor => {
        const figure = show(tensor, given[tensor.name]);
        const picture = pictureSizes(tensor);
        if (picture) {
            const chooser = Object.assign(document.createElement('input'), {type: 'file', accept: 'image/*'});
            chooser.ariaLabel = `a picture for ${tensor.name}`;
            chooser.onchange = () => telling(async () => {
                given[tensor.name] = await readPicture(chooser.files[0], picture);
                showInputs(inputs, given);
            });
            figure.append(element('div', '', chooser));
        }
        return figure;
    }));
}

function showFacts(model) {
    const {dmlgpu, source} = model.made;
    const adapter = model.adapter?.description || [model.adapter?.vendor, model.adapter?.architecture].join(' ');
    const facts = {
        adapter, loaded: `in ${model.loadMilliseconds.toFixed(0)} ms`,
        'made by': `dmlgpu ${dmlgpu}${source ? ` from ${source}` : ''}`,
    };
    byId('facts').replaceChildren(...Object.entries(facts).flatMap(([name, text]) => (
        [element('dt', name), element('dd', text)])));
    byId('name').textContent = document.title = model.name;
    const given = model.inputs.map(({name, type, shape}) => (
        `    ${JSON.stringify(name)}: new ${arraysOf(type)[0].name}(${count(shape)}),\n`)).join('');
    byId('code').textContent = `import {load} from './runtime.js';\n\nconst model = await load('./');\n`
        + `const results = await model.run({\n${given}});\n`
        + model.outputs.map(({name, shape}) => `results[${JSON.stringify(name)}]; // [${shape.join(', ')}]\n`).join('');
}

// A choice among the shapes that the model takes, if there are several; then(shapes) gets the chosen ones.
function chooseShapes(model, then) {
    if (model.shapes.length > 1) {
        const chooser = document.createElement('select');
        chooser.id = 'shapes';
        chooser.ariaLabel = 'shapes';
        chooser.append(...model.shapes.map(({inputs}) => (
            element('option', inputs.map(({name, shape}) => `${name} [${shape.join(', ')}]`).join(', ')))));
        chooser.onchange = () => then(model.shapes[chooser.selectedIndex]);
        byId('inputs').before(element('p', '', chooser));
    }
    then(model.shapes[0]);
}

await telling(async () => {
    const model = await load('./');
    let chosen;
    let given;
    showFacts(model);
    chooseShapes(model, shapes => {
        chosen = shapes;
        given = Object.fromEntries(chosen.inputs.map(tensor => [tensor.name, sample(tensor)]));
        showInputs(chosen.inputs, given);
    });
    tell('Ready. Everything is computed in this browser; nothing leaves it.');
    model.lost.then(reason => tell(reason, true));
    const button = byId('run');
    button.disabled = false;
    button.onclick = () => telling(async () => {
        button.disabled = true;
        try {
            const start = performance.now();
            const shapes = Object.fromEntries(chosen.inputs.map(({name, shape}) => [name, shape]));
            const found = await model.run(given, {shapes});
            byId('time').textContent = `${(performance.now() - start).toFixed(1)} ms`;
            byId('outputs').replaceChildren(...chosen.outputs.map(tensor => show(tensor, found[tensor.name])));
        } finally {
            button.disabled = false;
        }
    });
});
