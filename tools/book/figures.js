// figures.js -- makes the figures of a page live: the values under each are asked of the same C code, compiled to WebAssembly.
// The generator puts its bytes before this text, as the string figures_wasm, since a page from disk may not fetch a file.
(async () => {
  const bytes = Uint8Array.from(atob(figures_wasm), (c) => c.charCodeAt(0))
  const { instance: { exports: c } } = await WebAssembly.instantiate(bytes)
  c._initialize?.()

  // The answer to a request: [true, text], or [false, what is wrong with it].
  function ask(request) {
    const words = new TextEncoder().encode(request)
    const at = c.malloc(words.length + 1)
    let memory = new Uint8Array(c.memory.buffer)
    memory.set(words, at)
    memory[at + words.length] = 0
    const answer = c.fig_request(at)
    memory = new Uint8Array(c.memory.buffer) // it may have grown
    const text = new TextDecoder().decode(memory.slice(answer, memory.indexOf(0, answer)))
    c.free(answer)
    c.free(at)
    return text.startsWith('ok\n') ? [true, text.slice(3)] : [false, text.replace(/^error\[\w+\]: /, '')]
  }

  function element(name, properties, ...children) {
    const made = Object.assign(document.createElement(name), properties)
    made.append(...children)
    return made
  }

  function inputOf(control) {
    if (control.words) {
      return element('select', { name: control.name }, ...control.words.split('|').map((word) =>
        element('option', { value: word, selected: word === control.value }, word)))
    }
    return element('input', { type: 'number', name: control.name, value: control.value, min: control.least, max: control.most,
      step: control.whole ? 1 : 'any', required: true })
  }

  for (const figure of document.querySelectorAll('figure[data-request]')) {
    const name = figure.dataset.request.split(' ')[0]
    const about = JSON.parse(ask(figure.dataset.request + ' --json')[1])
    const sentence = figure.querySelector('.sentence'), picture = figure.querySelector('.picture-box')
    const text = figure.querySelector('details code'), command = figure.querySelector('.command')
    const wrong = element('p', { className: 'wrong' })
    sentence.setAttribute('role', 'status')
    wrong.setAttribute('role', 'alert')

    const inputs = about.controls.map(inputOf)
    const preset = element('select', { name: 'preset' }, element('option', { value: '' }, 'own values'),
      ...about.presets.map((one) => element('option', { value: one.name }, one.point)))
    preset.value = /^\w+ preset=(\S+)$/.exec(figure.dataset.request)?.[1] ?? ''
    const form = element('form', { className: 'controls' },
      element('label', { className: 'wide' }, 'show ', preset),
      ...about.controls.map((control, i) => element('label', {}, control.label + ' ', inputs[i])), wrong)
    form.addEventListener('submit', (event) => event.preventDefault())

    // Draws a request; what is wrong with it stands below the values, and the picture stays.
    function draw(request) {
      const [right, svg] = ask(request + ' --svg')
      wrong.textContent = right ? '' : svg
      if (!right) return null
      const now = JSON.parse(ask(request + ' --json')[1])
      picture.innerHTML = svg
      sentence.textContent = now.sentence
      text.textContent = ask(request + ' --text')[1]
      command.textContent = 'lockstep figure ' + request
      return now
    }
    form.addEventListener('input', (event) => {
      if (event.target === preset) {
        const now = preset.value ? draw(name + ' preset=' + preset.value) : null
        if (now) now.controls.forEach((control, i) => { inputs[i].value = control.value })
        return
      }
      preset.value = ''
      draw([name, ...inputs.map((input) => input.name + '=' + input.value)].join(' '))
    })
    figure.append(form)
  }
})()
