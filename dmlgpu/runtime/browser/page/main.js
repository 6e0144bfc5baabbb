// Lends this browser's GPU: connects, answers frames, connects again when the connection ends.

import {decode, encode} from './frames.js';
import {Executor, describe} from './executor.js';

const RETRY_MILLISECONDS = 1000;
const show = (id, text) => { document.getElementById(id).textContent = text; };

// The same page keeps its place when it is loaded again.
function identity() {
    const made = () => Array.from(crypto.getRandomValues(new Uint8Array(8)), each => each.toString(16).padStart(2, '0'));
    const found = sessionStorage.getItem('page') ?? made().join('');
    sessionStorage.setItem('page', found);
    return found;
}

function showProgress({now, done, count, verdict}) {
    if (now !== undefined) show('now', now);
    if (verdict !== undefined) show('verdict', verdict);
    const bar = document.getElementById('progress');
    if (count !== undefined) {
        bar.hidden = false;
        bar.max = count;
        bar.value = done;
    }
}

class Lending {
    constructor(facts) {
        this.facts = facts;
        this.executors = new Map();
    }

    connect() {
        const address = new URL('socket', location.href);
        address.protocol = location.protocol === 'https:' ? 'wss:' : 'ws:';
        const socket = new WebSocket(address);
        socket.binaryType = 'arraybuffer';
        socket.onopen = () => {
            show('connection', 'connected');
            socket.send(encode({hello: {page: identity(), facts: this.facts, hidden: document.hidden}}));
        };
        // One after the other until a frame is begun, so that commands keep their order.
        let begun = Promise.resolve();
        socket.onmessage = ({data}) => {
            begun = begun.then(() => this.begin(socket, data)).catch(error => show('verdict', String(error)));
        };
        socket.onclose = ({reason}) => {
            this.reset();
            show('connection', `lost${reason ? `: ${reason}` : ''}; reconnecting`);
            setTimeout(() => this.connect(), RETRY_MILLISECONDS);
        };
        document.onvisibilitychange = () => {
            if (socket.readyState === WebSocket.OPEN) socket.send(encode({hidden: document.hidden}));
        };
    }

    reset() {
        for (const session of [...this.executors.keys()]) this.end(session);
    }

    end(session) {
        this.executors.get(session)?.close();
        this.executors.delete(session);
    }

    // Returns when the frame's commands are given to the device; its answer is sent when they are done.
    async begin(socket, data) {
        const [header, bytes] = decode(data);
        if (header.show) return showProgress(header.show);
        const {session, id, commands} = header;
        const send = (answer, blobs) => {
            if (socket.readyState === WebSocket.OPEN) socket.send(encode({session, id, ...answer}, blobs));
        };
        if (header.close) {
            this.end(session);
        } else if (header.open) {
            const lost = reason => socket.send(encode({session, lost: reason}));
            try {
                this.executors.set(session, await Executor.open(lost));
                send({results: [], problems: []});
            } catch (error) {
                send({results: [], problems: [['page', String(error)]]});
            }
        } else {
            this.executors.get(session)?.run(commands, bytes).then(
                ({results, blobs, problems}) => send({results, problems}, blobs),
                error => send({results: [], problems: [['page', String(error)]]}),
            );
        }
    }
}

const facts = await describe().catch(() => null);
if (facts) {
    const {description, vendor, architecture} = facts;
    show('adapter', description || `${vendor} ${architecture}`);
    new Lending(facts).connect();
} else {
    const secure = isSecureContext ? 'this browser offers no WebGPU adapter'
        : 'browsers enable WebGPU only for secure addresses: https, or localhost';
    show('adapter', `none: ${secure}`);
}
