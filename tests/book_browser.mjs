// book_browser.mjs -- the pages of the handbook in a browser, from disk and without a network. Run by tests/long_book.sh.
//
//   node book_browser.mjs FOLDER MODULES CHROMIUM [SHOTS]
//
// FOLDER has the pages, MODULES npm's playwright-core and @axe-core/playwright. With SHOTS, pictures of each page go there. Each
// claim is counted; the last line is `N passed, M failed`.
import { createRequire } from 'node:module'
import { readdirSync } from 'node:fs'
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'

const [folder, modules, executablePath, shots] = process.argv.slice(2)
const require = createRequire(resolve(modules, 'x.js'))
const { chromium } = require('playwright-core')
const { AxeBuilder } = require('@axe-core/playwright')

let passed = 0, failed = 0
function claim(sentence, faults) {
  if (faults.length === 0) { passed++; return }
  failed++
  console.log('FAILED: ' + sentence)
  for (const fault of faults.slice(0, 8)) console.log('  | ' + fault.slice(0, 300))
}

const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
  '--disable-background-networking', '--disable-component-update', '--disable-sync'] })
const names = readdirSync(folder).filter((name) => name.endsWith('.html')).sort()
const address = (name) => pathToFileURL(resolve(folder, name)).href

// A page with what it logs and asks for, under the options of a context.
async function open(name, options) {
  const context = await browser.newContext({ offline: true, ...options })
  const page = await context.newPage()
  const faults = []
  page.on('console', (message) => { if (['error', 'warning'].includes(message.type())) faults.push('console: ' + message.text()) })
  page.on('pageerror', (error) => faults.push('error: ' + error.message))
  page.on('request', (request) => { if (!/^(file|data):/.test(request.url())) faults.push('asks for ' + request.url()) })
  page.on('requestfailed', (request) => faults.push('cannot load ' + request.url()))
  await page.goto(address(name))
  return { context, page, faults }
}

// Links that lead nowhere: every target is a page here, and every #name an element of it.
async function brokenLinks(page) {
  const faults = []
  for (const href of await page.$$eval('a[href]', (all) => all.map((a) => a.getAttribute('href')))) {
    if (/^https:/.test(href)) continue
    const [file, id] = href.split('#')
    if (file && !names.includes(file)) faults.push(href + ': no such page')
    else if (!file && id && !(await page.$('[id="' + id + '"]'))) faults.push(href + ': no such place on this page')
  }
  return faults
}

for (const name of names) {
  for (const width of [390, 768, 1280]) {
    const { context, page, faults } = await open(name, { viewport: { width, height: 900 } })
    claim(`${name} at ${width}: nothing fails, and nothing foreign is asked for`, faults)
    const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth)
    claim(`${name} at ${width}: no sideways scroll`, over > 0 ? [over + ' px too wide'] : [])
    if (width === 1280) claim(`${name}: no link is broken`, await brokenLinks(page))
    if (shots) await page.screenshot({ path: `${shots}/${name}-${width}.png`, fullPage: true })
    await context.close()
  }

  for (const colorScheme of ['light', 'dark']) {
    const { context, page } = await open(name, { colorScheme, viewport: { width: 1280, height: 900 } })
    const { violations } = await new AxeBuilder({ page }).withTags(['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']).analyze()
    claim(`${name}, ${colorScheme}: axe finds nothing`,
      violations.flatMap((v) => v.nodes.slice(0, 3).map((node) => `${v.id}: ${v.help}: ${node.html.slice(0, 160)}`)))
    const paper = await page.evaluate(() => getComputedStyle(document.body).backgroundColor.match(/\d+/g).slice(0, 3).map(Number))
    claim(`${name}, ${colorScheme}: the paper is ${colorScheme}`, (paper[0] > 128) === (colorScheme === 'light') ? [] : ['it is ' + paper])
    if (shots) await page.screenshot({ path: `${shots}/${name}-${colorScheme}.png` })
    await context.close()
  }

  { // Without JavaScript, and by keyboard: the first Tab offers to skip the chapters, and every link and box gets its turn.
    const { context, page, faults } = await open(name, { javaScriptEnabled: false, viewport: { width: 1280, height: 900 } })
    claim(`${name}: nothing fails without JavaScript`, faults)
    claim(`${name}: its text is there without JavaScript`, (await page.locator('main').innerText()).length > 500 ? [] : ['it is not'])
    await context.close()
  }
  {
    const { context, page } = await open(name, { viewport: { width: 1280, height: 900 } })
    const wanted = await page.$$eval('a[href], [tabindex="0"], summary, input, select, button', (all) => all.filter((e) => e.checkVisibility()).length)
    const faults = [], seen = new Set()
    for (let i = 0; i < wanted; i++) {
      await page.keyboard.press('Tab')
      const at = await page.evaluate(() => {
        const e = document.activeElement, box = e.getBoundingClientRect(), style = getComputedStyle(e)
        e.dataset.turn ??= String(document.querySelectorAll('[data-turn]').length)
        return { turn: e.dataset.turn, html: e.outerHTML.slice(0, 80), outline: style.outlineStyle, seen: box.width > 0 && box.right > 0 }
      })
      if (i === 0 && !at.html.includes('class="skip"')) faults.push('the first is ' + at.html)
      if (at.outline === 'none' || !at.seen) faults.push('its focus is not seen: ' + at.html)
      seen.add(at.turn)
    }
    if (seen.size !== wanted) faults.push(`${seen.size} of ${wanted} get the focus`)
    claim(`${name}: everything can be reached by keyboard, and its focus seen`, faults)
    await context.close()
  }
  { // Figures answer: to each preset and to a key on each slider; a choice that cannot be says so, and the picture stays.
    const { context, page, faults } = await open(name, { viewport: { width: 1280, height: 900 } })
    for (const figure of await page.$$('figure[data-request]')) {
      const request = await figure.getAttribute('data-request')
      const drawn = async () => {
        await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))))
        return figure.$eval('.picture-box', (box) => box.innerHTML)
      }
      if (!(await figure.$('form'))) { faults.push(request + ': no values to change'); continue }
      const pictures = new Set()
      for (const preset of await figure.$$('.figure-presets button')) {
        await preset.press('Enter')
        pictures.add(await drawn())
      }
      if (pictures.size < 2) faults.push(request + ': presets change nothing')
      let changed = 0
      for (const slider of await figure.$$('input[type=range]')) {
        const before = await drawn()
        await slider.press('ArrowRight')
        changed += await drawn() !== before
      }
      if (changed === 0) faults.push(request + ': no key changes the picture')
      for (const choice of await figure.$$('select')) {
        const before = await drawn()
        const last = await choice.$eval('option:last-child', (o) => o.value)
        if (await choice.inputValue() === last) continue
        await choice.selectOption(last)
        if (await drawn() === before && !(await figure.$eval('.figure-says', (e) => e.textContent))) faults.push(`${request}: ${last} does nothing`)
      }
      const ids = await page.$$eval('[id]', (all) => all.map((e) => e.id))
      for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) faults.push('two elements are called ' + id)
    }
    claim(`${name}: its figures answer`, faults)
    await context.close()
  }
  { // In print: the text without the lists of chapters, and no line is cut off.
    const { context, page } = await open(name, { viewport: { width: 673, height: 980 } })
    await page.emulateMedia({ media: 'print', colorScheme: 'dark' })
    const faults = await page.evaluate(() => {
      const faults = []
      for (const nav of document.querySelectorAll('nav'))
        if (getComputedStyle(nav).display !== 'none') faults.push('it prints links to other chapters')
      if (getComputedStyle(document.body).backgroundColor !== 'rgb(255, 255, 255)') faults.push('it prints on dark paper')
      for (const box of document.querySelectorAll('pre, .table'))
        if (box.scrollWidth > box.clientWidth + 1) faults.push('it cuts off: ' + box.innerText.slice(0, 100))
      return faults
    })
    claim(`${name}: prints whole`, faults)
    if (shots) await page.screenshot({ path: `${shots}/${name}-print.png`, fullPage: true })
    await context.close()
  }
}

await browser.close()
claim('there are pages', names.length >= 8 ? [] : [names.length + ' pages'])
console.log(`${passed} passed, ${failed} failed`)
process.exit(failed > 0 ? 1 : 0)
