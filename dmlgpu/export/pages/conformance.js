// The conformance page: loads cases in parts, runs them, shows what came of them, and saves it as JSON Lines.

import {runCase} from './cases.js';
import {ModelError, openDevice} from './device.js';
import {adapterFacts} from './facts.js';
import {decode as decodeFrame} from './frames.js';

const FORMAT = 1;
const CASE_MILLISECONDS = 60000;
const LOSS_MILLISECONDS = 500;
const AT_A_TIME = 4; // while one case runs, pipelines of others are made
const LOST = new Set(['device lost', 'time-out']);
const NO_NEEDS = {features: [], limits: {}};
const byId = id => document.getElementById(id);
const counted = (number, noun) => `${number.toLocaleString('en')} ${noun}${number === 1 ? '' : 's'}`;

function element(kind, text = '', ...children) {
    const made = document.createElement(kind);
    made.textContent = text;
    made.append(...children);
    return made;
}

function tell(text, kind = '') {
    byId('state').textContent = text;
    byId('state').className = kind;
}

async function fetched(name) {
    let response;
    try {
        response = await fetch(name);
    } catch (error) {
        throw new ModelError('file', `${name} cannot be loaded: ${error.message}`);
    }
    if (!response.ok) throw new ModelError('file', `${name} cannot be loaded: ${response.status}`);
    return new Uint8Array(await response.arrayBuffer());
}

async function loadIndex() {
    const text = new TextDecoder().decode(await fetched('cases.json'));
    let index;
    try {
        index = JSON.parse(text);
    } catch (error) {
        throw new ModelError('file', `cases.json is not JSON: ${error.message}`);
    }
    if (index?.format !== FORMAT || !Array.isArray(index.parts)) {
        throw new ModelError('file', `cases.json must be a list of cases of format ${FORMAT}.`);
    }
    return index;
}

// The cases of a part, and the bytes that they name.
async function loadPart({file, bytes, cases}) {
    const packed = await fetched(file);
    if (packed.length !== bytes) {
        throw new ModelError('file', `${file} has ${packed.length} bytes; cases.json says ${bytes}.`);
    }
    try {
        const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
        const [header, data] = decodeFrame(await new Response(unpacked).arrayBuffer());
        if (header.cases.length !== cases.length) throw new Error('its cases differ from cases.json');
        return [header.cases, data];
    } catch (error) {
        throw new ModelError('file', `${file} is damaged: ${error.message}`);
    }
}

// Runs cases, several at a time, whatever happens. A device that is lost, or busy for a minute, is opened anew.
class Runner {
    async open() {
        const {adapter, device} = await openDevice(NO_NEEDS);
        const held = {device, reason: ''};
        this.facts = adapterFacts(adapter);
        this.held = held;
        held.lost = device.lost.then(({reason, message}) => {
            held.reason ||= `the device is lost (${reason}): ${message}`;
        });
    }

    async ready() {
        if (this.held.reason) {
            this.opening ??= this.open().finally(() => { this.opening = null; });
            await this.opening;
        }
        return this.held;
    }

    // Return records in the order of the cases; what was lost with others is tried again by itself.
    async runAll(entries, bytes, done) {
        const records = [];
        let next = 0;
        const lane = async () => {
            while (next < entries.length) {
                const at = next++;
                records[at] = await this.run(entries[at], bytes);
                if (!LOST.has(records[at].status)) done(records[at]);
            }
        };
        await Promise.all(Array.from({length: AT_A_TIME}, lane));
        for (let at = 0; at < entries.length; at++) {
            if (!LOST.has(records[at].status)) continue;
            records[at] = await this.run(entries[at], bytes);
            done(records[at]);
        }
        return records;
    }

    async run(entry, bytes) {
        const held = await this.ready();
        const start = performance.now();
        const failed = (status, message) => ({
            case: entry.name, status, tolerance: entry.tolerance, message, seconds: (performance.now() - start) / 1e3,
        });
        let timer;
        const late = new Promise(done => { timer = setTimeout(done, CASE_MILLISECONDS, 'late'); });
        try {
            const found = await Promise.race([runCase(held.device, entry, bytes), late]);
            if (found !== 'late') return found;
            held.reason ||= 'the device was abandoned after a case timed out';
            held.device.destroy();
            return failed('time-out', `no result within ${CASE_MILLISECONDS / 1000} s`);
        } catch (error) {
            // Work and compilation on a lost device fail before the device reports its loss.
            await Promise.race([held.lost, new Promise(done => { setTimeout(done, LOSS_MILLISECONDS); })]);
            if (held.reason) return failed('device lost', held.reason);
            return failed('fail', error.code === 'compile' ? compileError(error, this.facts) : error.message);
        } finally {
            clearTimeout(timer);
        }
    }
}

// As dmlgpu writes it, so that reports find what such errors have in common.
const compileError = ({message}, {name}) => message.replace('does not compile here:', `does not compile on ${name}:`);

function shareText(error) {
    if (!error) return 'exact';
    const percent = 100 * error;
    if (percent < 0.1) return 'below 0.1 % of the tolerance';
    return `${percent < 9.95 ? percent.toPrecision(2) : percent.toFixed(0)} % of the tolerance`;
}

const now = () => `${new Date().toISOString().slice(0, 19)}+00:00`;

// What came of the cases: the rows of the table, what is wrong, and the lines of the file.
class Results {
    constructor(index, facts) {
        this.header = {record: 'run', ...index.header, adapter: facts, started: now()};
        this.records = [];
        this.rows = new Map();
    }

    add(record) {
        const operator = record.case.split('-')[0];
        const row = this.rows.get(operator) ?? {pass: 0, refused: 0, fail: 0, error: 0};
        this.rows.set(operator, row);
        if (record.status === 'pass') row.pass += 1;
        else if (record.status === 'not supported') row.refused += 1;
        else row.fail += 1;
        if (typeof record.of_bound === 'number') row.error = Math.max(row.error, record.of_bound);
        if (record.status !== 'pass' && record.status !== 'not supported') this.showFailure(record);
    }

    showFailure({case: name, status, message = '', wrong = 0, elements, worst = [], expected, got}) {
        const count = `${wrong} of ${elements} elements ${wrong === 1 ? 'is' : 'are'} wrong`;
        const values = `${count}; the worst, at [${worst.join(', ')}]: expected ${expected}, got ${got}`;
        const text = [message, wrong ? values : ''].filter(Boolean).join('; ');
        byId('failed').hidden = false;
        byId('failures').append(element('p', '', element('code', name), `: ${status}; ${text}`));
    }

    showTable() {
        byId('table').hidden = false;
        byId('operators').replaceChildren(...[...this.rows].map(([operator, {pass, refused, fail, error}]) => {
            const texts = [operator, pass, refused || '', fail || '', pass ? shareText(error) : ''];
            const row = element('tr', '', ...texts.map(text => element('td', String(text))));
            if (fail) row.className = 'bad';
            return row;
        }));
    }

    get verdict() {
        const counts = new Map();
        for (const {status} of this.records) counts.set(status, (counts.get(status) ?? 0) + 1);
        return counts;
    }

    get lines() {
        const end = {record: 'end', ended: now(), counts: Object.fromEntries(this.verdict)};
        const cases = this.records.map(record => ({record: 'case', ...record}));
        return [this.header, ...cases, end].map(each => `${JSON.stringify(each)}\n`).join('');
    }

    save() {
        const address = URL.createObjectURL(new Blob([this.lines], {type: 'application/jsonl'}));
        const link = Object.assign(document.createElement('a'), {href: address, download: 'conformance.jsonl'});
        link.click();
        setTimeout(() => URL.revokeObjectURL(address), 1000);
    }
}

async function runAll(index, runner) {
    const results = new Results(index, runner.facts);
    const progress = byId('progress');
    Object.assign(progress, {hidden: false, max: index.header.cases, value: 0});
    const done = record => {
        results.add(record);
        progress.value += 1;
        byId('now').textContent = record.case;
    };
    let next = loadPart(index.parts[0]);
    for (let at = 0; at < index.parts.length; at++) {
        const [cases, bytes] = await next;
        next = at + 1 < index.parts.length ? loadPart(index.parts[at + 1]) : null;
        next?.catch(() => {}); // whoever awaits it above hears of it
        results.records.push(...await runner.runAll(cases, bytes, done));
    }
    byId('now').textContent = '';
    return results;
}

async function telling(action) {
    try {
        await action();
    } catch (error) {
        tell(error instanceof ModelError ? error.message : String(error), 'bad');
        if (!(error instanceof ModelError)) throw error;
    }
}

await telling(async () => {
    const index = await loadIndex();
    const runner = new Runner();
    await runner.open();
    const bytes = index.parts.reduce((sum, part) => sum + part.bytes, 0);
    const facts = {
        adapter: `${runner.facts.name} (${runner.facts.driver})`,
        cases: `${counted(index.header.cases, 'case')} of the profile ${index.header.profile}; `
            + `${counted(index.left_out, 'case')} more with dmlgpu test only`,
        'download size': `${(bytes / 1e6).toFixed(1)} MB, in ${counted(index.parts.length, 'part')}`,
        'made by': `dmlgpu ${index.header.dmlgpu}`,
    };
    byId('facts').replaceChildren(...Object.entries(facts).flatMap(([name, text]) => (
        [element('dt', name), element('dd', text)])));
    tell('Ready.');
    const start = byId('start');
    start.disabled = false;
    start.onclick = () => telling(async () => {
        start.disabled = true;
        tell('Running. Keep this page visible: browsers pause hidden ones.');
        const results = await runAll(index, runner);
        results.showTable();
        const isGood = [...results.verdict.keys()].every(status => status === 'pass' || status === 'not supported');
        const text = [...results.verdict].map(([status, number]) => `${number} ${status}`).join(', ');
        tell(`${counted(index.header.cases, 'case')}: ${text}`, isGood ? 'good' : 'bad');
        byId('save').hidden = false;
        byId('save').onclick = () => results.save();
    });
});
