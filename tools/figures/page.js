// page.js -- makes the figures of a page live: controls whose values go to the C code of the figures, in WebAssembly.
//
// tools/figures/build puts the module's bytes behind this function, as its argument; both together are figures.js:
//
//     <figure class="drawn"> <div>SVG</div> <figcaption>the sentence .. <code>lockstep figure schedule preset=ring</code>
//       </figcaption> <details>..<pre><code>the text that this command prints</code></pre></details> </figure>
//     <script src="figures.js" defer></script>
//
// Without the script a page has the picture and the text at rest. The request is the last <code> of the caption, or the
// figure's data-request. Nothing is fetched, nothing is stored, and nothing moves unless a reader presses Play.
'use strict';
function lockstepFigures(base64) {
    const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
    const c = new WebAssembly.Instance(new WebAssembly.Module(bytes), {}).exports;

    // The answer to a request; throws an Error with the message of one that is refused.
    function ask(request) {
        const text = new TextEncoder().encode(request), at = c.malloc(text.length + 1);
        let memory = new Uint8Array(c.memory.buffer);
        memory.set(text, at);
        memory[at + text.length] = 0;
        const answer = c.fig_request(at);
        memory = new Uint8Array(c.memory.buffer); // it may have grown
        const got = new TextDecoder().decode(memory.slice(answer, memory.indexOf(0, answer)));
        c.free(answer);
        c.free(at);
        if (!got.startsWith('ok\n')) throw new Error(got.trim());
        return got.slice(3);
    }

    function element(name, attributes, ...children) {
        const e = document.createElement(name);
        for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
        e.append(...children);
        return e;
    }

    // --- numbers on a slider: few whole ones as they are, others by their logarithm -------------------------------

    const STOPS = 200;
    const isPlain = (k) => k.whole && k.most - k.least <= 256;
    const lowest = (k) => (k.least > 0 ? k.least : k.whole ? 1 : k.most * 1e-6);
    function stopOf(k, v) {
        if (isPlain(k)) return v;
        if (v < lowest(k)) return 0;
        return Math.max(1, Math.round((STOPS * Math.log(v / lowest(k))) / Math.log(k.most / lowest(k))));
    }
    function valueAt(k, stop) {
        if (isPlain(k)) return stop;
        if (stop <= 0) return k.least;
        const v = lowest(k) * Math.pow(k.most / lowest(k), stop / STOPS);
        return Math.min(k.most, Math.max(k.least, k.whole ? Math.round(v) : Number(v.toPrecision(3))));
    }

    // --- one figure -------------------------------------------------------------------------------------------------

    let number = 0; // of ids on this page

    function enliven(figure) {
        const caption = figure.querySelector('figcaption'), command = [...figure.querySelectorAll('figcaption code')].pop();
        const words = figure.dataset.request || (command?.textContent ?? '');
        const request = words.replace(/^lockstep figure /, '').replace(/ --\w+$/, '');
        let now;
        try {
            now = JSON.parse(ask(request + ' --json'));
        } catch {
            return; // not one of these figures: it stays as it is
        }
        const name = now.figure, picture = figure.querySelector('svg').parentNode, text = figure.querySelector('pre code');
        const says = element('p', { role: 'status', 'aria-live': 'polite', class: 'figure-says' });
        const table = element('table', {}), form = element('form', { class: 'figure-controls', 'aria-label': now.title });
        const values = new Map(now.controls.map((k) => [k.name, k.value]));
        const first = new Map(JSON.parse(ask(name + ' --json')).controls.map((k) => [k.name, k.value]));
        const point = caption?.firstChild?.textContent.startsWith(now.sentence) ? caption.firstChild : null;
        const inputs = new Map();
        let timer = 0, waits = false;

        const line = () => name + [...values].filter(([k, v]) => v !== first.get(k)).map(([k, v]) => ` ${k}=${v}`).join('');
        function fillTable() {
            const row = (cells, kind) => element('tr', {}, ...cells.map((v) => element(kind, {}, String(v))));
            table.replaceChildren(element('caption', {}, now.title), element('thead', {}, row(now.table.columns, 'th')),
                element('tbody', {}, ...now.table.rows.map((r) => row(r, 'td'))));
        }
        function show() {
            waits = false;
            try {
                const before = now.sentence;
                now = JSON.parse(ask(line() + ' --page'));
                picture.innerHTML = now.svg;
                if (text) text.textContent = now.text;
                says.textContent = point ? '' : now.sentence;
                if (point) point.textContent = point.textContent.replace(before, () => now.sentence);
                if (command) command.textContent = 'lockstep figure ' + line();
                fillTable();
            } catch (e) {
                stop();
                says.textContent = e.message; // the picture before stays
            }
        }
        // Once per frame at most: a slider that is dragged says more.
        function later() {
            if (waits) return;
            waits = true;
            requestAnimationFrame(show);
        }

        function addControl(k) {
            const id = `figure-${number++}`;
            const output = element('output', { for: id });
            let input;
            if (k.words) {
                input = element('select', { id }, ...k.words.split('|').map((w) => element('option', { value: w }, w)));
            } else {
                const [min, max] = isPlain(k) ? [k.least, k.most] : [0, STOPS];
                input = element('input', { id, type: 'range', min, max, step: 1 });
            }
            const set = (value) => {
                values.set(k.name, value);
                input.value = k.words ? value : stopOf(k, Number(value));
                output.textContent = k.words ? '' : value;
                if (!k.words) input.setAttribute('aria-valuetext', value);
            };
            input.addEventListener('input', () => {
                const value = k.words ? input.value : String(valueAt(k, Number(input.value)));
                values.set(k.name, value);
                output.textContent = k.words ? '' : value;
                if (!k.words) input.setAttribute('aria-valuetext', value);
                later();
            });
            inputs.set(k.name, set);
            set(k.value);
            form.append(element('div', {}, element('label', { for: id }, k.label), input, output));
        }

        const button = (label, act, attributes = {}) => {
            const b = element('button', { type: 'button', ...attributes }, label);
            b.addEventListener('click', act);
            return b;
        };
        function addPresets() {
            const box = element('div', { role: 'group', 'aria-label': 'Presets', class: 'figure-presets' });
            for (const p of now.presets)
                box.append(button(p.name, () => {
                    stop();
                    for (const k of JSON.parse(ask(`${name} preset=${p.name} --json`)).controls) inputs.get(k.name)(k.value);
                    later();
                }, { title: p.point }));
            form.append(box);
        }

        // Only figures with rounds move, and only when asked to.
        let play;
        function stop() {
            clearInterval(timer);
            timer = 0;
            if (play) play.textContent = 'Play';
        }
        function start() {
            if (Number(values.get('step')) >= now.facts.rounds) inputs.get('step')('0');
            play.textContent = 'Stop';
            timer = setInterval(() => {
                const next = Number(values.get('step')) + 1;
                if (next > now.facts.rounds) return stop();
                inputs.get('step')(String(next));
                later();
            }, 800);
        }

        now.controls.forEach(addControl);
        addPresets();
        if (values.has('step')) {
            play = button('Play', () => (timer ? stop() : (start(), later())));
            form.append(play);
        }
        form.addEventListener('submit', (e) => e.preventDefault());
        if (point) caption.setAttribute('aria-live', 'polite');
        else says.textContent = now.sentence;
        fillTable();
        picture.after(form, says);
        figure.append(element('details', {}, element('summary', {}, 'The figure as a table'),
            element('div', { class: 'table', tabindex: '0' }, table)));
    }

    document.head.append(element('style', {}, `
        .figure-controls { display: grid; grid-template-columns: repeat(auto-fill, minmax(15em, 1fr)); gap: .5em 1.5em; }
        .figure-controls label { display: block; font-size: .85em; }
        .figure-controls input, .figure-controls select { min-height: 24px; max-width: 75%; vertical-align: middle; }
        .figure-controls output { margin-left: .5em; font-variant-numeric: tabular-nums; }
        .figure-controls button { min-height: 28px; margin: 0 .4em .4em 0; }
        .figure-presets { grid-column: 1 / -1; }
        @media print { .figure-controls { display: none; } }`));
    document.querySelectorAll('figure[data-request], figure.drawn').forEach(enliven);
}
