// figures_page.mjs -- figures.js in a page of five figures, as far as it needs a browser: elements, events, timers.
//
//   node tests/figures_page.mjs figures.js LOCKSTEP        for tests/test_figures_page.sh; one line per claim
import { readFileSync } from 'node:fs';
import { execFileSync } from 'node:child_process';

class Element {
    constructor(name) { Object.assign(this, { name, children: [], attributes: {}, dataset: {}, handlers: {}, value: '', own: '' }); }
    setAttribute(key, value) { this.attributes[key] = String(value); }
    append(...more) { more.forEach((m) => this.children.push(this.take(typeof m === 'string' ? text(m) : m))); }
    take(child) { child.parentNode = this; return child; }
    after(...more) { this.parentNode.append(...more); }
    replaceChildren(...more) { this.children = []; this.append(...more); }
    addEventListener(kind, act) { this.handlers[kind] = act; }
    fire(kind) { this.handlers[kind]({ preventDefault() {} }); }
    get firstChild() { return this.children[0]; }
    get textContent() { return this.own + this.children.map((c) => c.textContent).join(''); }
    set textContent(s) { this.children = []; this.own = s; }
    all() { return this.children.flatMap((c) => [c, ...c.all()]); }
    querySelectorAll(path) { // "figcaption code": names one inside another
        const [name, inner] = path.split(' ');
        const found = this.all().filter((e) => e.name === name);
        return inner ? found.flatMap((e) => e.querySelectorAll(inner)) : found;
    }
    querySelector(path) { return this.querySelectorAll(path)[0] ?? null; }
}
const text = (s) => Object.assign(new Element('#text'), { own: s });
const make = (name, ...children) => { const e = new Element(name); e.append(...children); return e; };

const [script, lockstep] = process.argv.slice(2);
const native = (request, form) => execFileSync(lockstep, ['figure', ...request.split(' '), form], { encoding: 'utf8' });
const requests = ['schedule preset=ring', 'winner preset=ethernet', 'buckets preset=default', 'sampler n=10', 'ledger preset=all ranks=4'];
const figures = requests.map((r) => {
    const sentence = native(r, '--text').split('\n')[2];
    return make('figure', make('div', make('svg')), make('figcaption', sentence + ' of code.', make('code', 'lockstep figure ' + r)),
        make('pre', make('code', 'at rest')));
});
figures.push(make('figure', make('div', make('svg')), make('figcaption', 'drawn by hand'))); // not one of these
const frames = [], timers = new Map();
globalThis.document = { createElement: (name) => new Element(name), head: make('head'), querySelectorAll: () => figures };
globalThis.requestAnimationFrame = (f) => frames.push(f);
globalThis.setInterval = (f) => { timers.set(timers.size + 1, f); return timers.size; };
globalThis.clearInterval = (t) => timers.delete(t);
const frame = () => frames.splice(0).forEach((f) => f());

let failed = 0;
function claim(sentence, holds, found = '') {
    console.log(`${holds ? 'ok' : 'FAILED'}: ${sentence}${holds ? '' : `: ${found}`}`);
    failed += !holds;
}
(0, eval)(readFileSync(script, 'utf8')); // a script, as in a page

const control = (f, label) => f.querySelectorAll('div').find((d) => d.children[0]?.textContent.startsWith(label)).children[1];
const shown = (f) => f.querySelector('figcaption code').textContent.replace('lockstep figure ', '');
const picture = (f) => f.querySelector('div').innerHTML;
const caption = (f) => f.querySelector('figcaption').textContent;
const says = (f) => f.querySelectorAll('p')[0].textContent;
const button = (f, label) => f.querySelectorAll('button').find((b) => b.textContent === label);
function turn(f, label, value) {
    const c = control(f, label);
    c.value = value;
    c.fire('input');
    frame();
}
function same(f, what) {
    claim(`${what}: the picture is the command's`, picture(f) === native(shown(f), '--svg'), shown(f));
    claim(`${what}: so is the text`, f.querySelector('pre').textContent === native(shown(f), '--text'), shown(f));
    claim(`${what}: so is the sentence`, caption(f).startsWith(native(shown(f), '--text').split('\n')[2] + ' of code.'), caption(f));
}

claim('five figures have controls', figures.filter((f) => f.querySelector('form')).length === 5);
claim('the other one stays as it is', figures[5].children.length === 2);
claim('nothing moves by itself', timers.size === 0 && frames.length === 0);
claim('every control has a label', figures.slice(0, 5).every((f) => [...f.querySelectorAll('input'), ...f.querySelectorAll('select')]
    .every((i) => f.querySelectorAll('label').some((l) => l.attributes.for === i.attributes.id))));
const ids = figures.flatMap((f) => f.all()).map((e) => e.attributes.id).filter(Boolean);
claim('ids are different', new Set(ids).size === ids.length);
const [schedule, winner, buckets, sampler, ledger] = figures;

turn(schedule, 'ranks', '9');
claim('a slider changes the command', shown(schedule) === 'schedule ranks=9 step=3', shown(schedule));
same(schedule, 'ranks');
turn(winner, 'latency', '200');
claim('the end of a slider is the most', shown(winner) === 'winner alpha_us=100000', shown(winner));
same(winner, 'latency');
turn(winner, 'latency', '0');
claim('its beginning the least', shown(winner) === 'winner alpha_us=0.01', shown(winner));
turn(buckets, 'ddp.bucket_cap', '100');
claim('and its middle the middle of logarithms', shown(buckets) === 'buckets cap_kib=1024', shown(buckets));
same(buckets, 'cap');
turn(sampler, 'drop the last', 'on');
same(sampler, 'drop_last');
button(ledger, 'ddp').fire('click');
frame();
claim('a preset sets all controls', shown(ledger) === 'ledger stage=0', shown(ledger));
same(ledger, 'preset');
claim('the table has the rows', ledger.querySelectorAll('tr').length === 5);

const before = picture(schedule);
turn(schedule, 'algorithm', 'chain');
claim('what is refused is said', says(schedule).includes('algo=chain does not do all_reduce'), says(schedule));
claim('and the picture stays', picture(schedule) === before);
turn(schedule, 'algorithm', 'ring');
claim('until it fits', says(schedule) === '', says(schedule));

button(schedule, 'ring-end').fire('click');
frame();
button(schedule, 'Play').fire('click');
frame();
claim('Play begins at the start', shown(schedule) === 'schedule step=0', shown(schedule));
for (let i = 0; i < 20; i++) {
    timers.forEach((f) => f());
    frame();
}
claim('and ends after the last round', shown(schedule) === 'schedule step=6' && timers.size === 0, shown(schedule));
same(schedule, 'Play');
process.exit(failed ? 1 : 0);
