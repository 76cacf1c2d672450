// Draws the timeline. Zooming, moving and searching happen here: the server sends parts of the
// timeline (/api/analyses/ID/timeline) and hears of a window when the gesture that chose it ended.

const GUTTER_PX = 180
const MAP_PX = 34
const AXIS_PX = 24
const TOP_PX = MAP_PX + AXIS_PX
const LANE_PX = 21
const BAR_PX = 14
const GAP_PX = 7
const BAR_GAP_PX = 3
const MAX_LANES = 1000
const MAX_WIDTH_PX = 2 ** 16
const FONT_PX = 12
const TICK_PX = 110
const MIN_LABEL_PX = 26
const CLICK_PX = 4
const ZOOM_PER_PX = 0.0018
const KEY_ZOOM = 1.6
const KEY_PAN = 0.2
const MIN_NS = 1000
const SEARCH_MARGIN = 4 // lengths of a found event on either side of it
const COMMIT_MS = 400 // the server hears of a window that did not change for so long
const FETCH_MS = 60
const SEARCH_MS = 250
const RENEW_MS = 60 * 1000
const MAX_PARTS = 48
const MAX_COARSE = 16 // zoom at which bars of a coarser part are too coarse

const NOT_MATCHING = 0.2
const MIN_LETTERS = 8 // of a name that is cut
const WORDS = /^[A-Za-z-]+( [A-Za-z-]+)+$| [kMGT]?B$/

const LABEL = "Timeline of the recording. W and S or arrow up and down zoom, A and D or arrow left " +
  "and right move, F shows the whole recording. The fields above and the tables below have the " +
  "same times and events."

const views = (window.jarvisTimelines ??= new WeakMap())

const digits = (value, count) => Number(value.toPrecision(count)).toLocaleString("en-US", { maximumFractionDigits: 6 })

const duration = ns => {
  if (ns < 1e3) return `${digits(ns, 3)} ns`
  if (ns < 1e5) return `${digits(ns / 1e3, 3)} µs`
  return `${digits(ns / 1e6, 3)} ms`
}

const inMs = (ns, decimals) =>
  (ns / 1e6).toLocaleString("en-US", { minimumFractionDigits: decimals, maximumFractionDigits: decimals })

const niceStep = least => {
  const power = 10 ** Math.floor(Math.log10(least))
  return [1, 2, 5, 10].map(n => n * power).find(step => step >= least)
}

const within = (value, low, high) => Math.min(Math.max(value, low), high)

class Timeline {
  constructor(root) {
    const part = name => root.querySelector(`.${name}`)
    this.part = part
    this.canvas = part("canvas")
    this.canvas.setAttribute("aria-label", LABEL)
    this.context = this.canvas.getContext("2d")
    this.parts = new Map()
    this.pending = new Map()
    this.sent = []
    this.start = 0
    this.length = 0
    this.match = -1
    this.found = null
    this.query = ""
    this.resized = new ResizeObserver(() => {
      this.fitLegend()
      this.redraw()
    })
    this.onKey = event => this.pressed(event)
    this.listen()
  }

  listen() {
    const { canvas, part } = this
    canvas.addEventListener("wheel", event => this.wheeled(event), { passive: false })
    canvas.onpointerdown = event => this.down(event)
    canvas.onpointermove = event => this.moved(event)
    canvas.onpointerup = event => this.up(event)
    canvas.onpointercancel = () => this.cancel()
    canvas.onpointerleave = () => this.tell(null)
    canvas.ondblclick = event => this.zoomTo(this.at(event))
    part("in").onclick = () => this.zoom(1 / KEY_ZOOM)
    part("out").onclick = () => this.zoom(KEY_ZOOM)
    part("whole").onclick = () => this.show(0, this.data.whole)
    part("measure").onclick = () => this.measure(this.start, this.start + this.length)
    part("zoom").onclick = () => this.show(this.brush[0], this.brush[1] - this.brush[0])
    part("close").onclick = () => this.measure(0, 0)
    part("next").onclick = () => this.step(1)
    part("previous").onclick = () => this.step(-1)
    part("sought").oninput = () => {
      clearTimeout(this.searching)
      this.searching = setTimeout(() => this.search(), SEARCH_MS)
    }
    part("sought").onkeydown = event => {
      if (event.key === "Enter") this.step(event.shiftKey ? -1 : 1)
    }
  }

  update(data, send) {
    this.send = send
    const isOther = data.version !== this.data?.version
    const [start, length] = data.window
    const echoed = this.sent.findIndex(([at, span]) => at === start && span === length)
    const isNew = `${data.window}` !== `${this.data?.window}`
    // A row of a table below was selected.
    const isElsewhere = this.data && !isOther && echoed < 0 && (isNew || data.selected !== this.selected)
    this.data = data
    this.selected = data.selected
    if (isOther) {
      this.parts.clear()
      this.abort()
      this.map = this.found = null
    }
    // A rerun tells of a window that this view chose, maybe before it was moved again.
    if (echoed >= 0) this.sent.splice(0, echoed + 1)
    else if (isOther || isNew) {
      clearTimeout(this.committing)
      this.sent = []
      this.start = start
      this.length = length
    }
    this.layOut()
    this.drawLegend()
    if (isElsewhere) this.canvas.scrollIntoView({ block: "nearest" })
    document.addEventListener("keydown", this.onKey)
    this.resized.observe(this.canvas)
    if (isOther && this.query) this.search()
    if (isOther && this.brush) this.measure(0, 0)
    this.redraw()
    this.fetchSoon()
  }

  leave() {
    document.removeEventListener("keydown", this.onKey)
    this.resized.disconnect()
  }

  layOut() {
    let top = TOP_PX + GAP_PX
    this.tops = this.data.rows.map(([label, lanes, isBar], number) => {
      if (number) top += label ? GAP_PX : BAR_GAP_PX
      const row = { label, lanes, isBar, top, height: isBar ? BAR_PX : lanes * LANE_PX }
      top += row.height
      return row
    })
    this.height = top + GAP_PX
    this.canvas.style.height = `${this.height}px`
  }

  drawLegend() {
    const items = this.data.legend.map(what => {
      const item = document.createElement("span")
      item.className = "item"
      item.append(this.swatch(what), what)
      return item
    })
    const more = document.createElement("button")
    more.type = "button"
    more.onclick = () => {
      this.part("legend").classList.toggle("open")
      this.fitLegend()
    }
    this.part("legend").replaceChildren(...items, more)
    this.fitLegend()
  }

  // One line: a button shows the items that do not fit.
  fitLegend() {
    const legend = this.part("legend")
    const [more, items] = [legend.lastElementChild, [...legend.children].slice(0, -1)]
    const isOpen = legend.classList.contains("open")
    const isWide = () => legend.scrollWidth > legend.clientWidth
    for (const item of items) item.hidden = false
    more.hidden = true
    if (!isWide() && !isOpen) return
    more.hidden = false
    more.textContent = "less"
    let hidden = 0
    while (!isOpen && isWide() && hidden < items.length) {
      hidden++
      items.at(-hidden).hidden = true
      more.textContent = `+${hidden} more`
    }
    more.setAttribute("aria-expanded", isOpen)
    more.title = items.filter(item => item.hidden).map(item => item.textContent).join(", ")
  }

  swatch(what) {
    const swatch = document.createElement("span")
    swatch.className = "swatch"
    swatch.style.background = this.color(what)[0]
    return swatch
  }

  color(what) {
    return this.data.colors[what] ?? ["#888888", "#000000"]
  }

  // ---- the window

  get scale() {
    return (this.width - GUTTER_PX) / this.length
  }

  x(ns) {
    return GUTTER_PX + (ns - this.start) * this.scale
  }

  ns(x) {
    return this.start + (x - GUTTER_PX) / this.scale
  }

  show(start, length) {
    this.length = within(length, Math.min(MIN_NS, this.data.whole), this.data.whole)
    this.start = within(start, 0, this.data.whole - this.length)
    this.tell(null)
    this.redraw()
    this.fetchSoon()
    this.commitSoon()
  }

  zoom(factor, at = this.start + this.length / 2) {
    const length = within(this.length * factor, Math.min(MIN_NS, this.data.whole), this.data.whole)
    this.show(at - ((at - this.start) * length) / this.length, length)
  }

  zoomTo(mark) {
    if (!mark?.length) return
    this.show(mark.start - mark.length / 4, mark.length * 1.5)
  }

  commitSoon() {
    clearTimeout(this.committing)
    if (this.drag) return
    this.committing = setTimeout(() => {
      const length = Number((this.length / 1e6).toFixed(4))
      const start = Number(Math.min(this.start / 1e6, this.data.whole / 1e6 - length).toFixed(4))
      const chosen = [Math.round(start * 1e6), Math.round(length * 1e6)]
      const last = this.sent.at(-1) ?? this.data.window
      if (`${chosen}` === `${last}`) return
      this.sent.push(chosen)
      this.send("window", { start, length })
    }, COMMIT_MS)
  }

  // ---- gestures

  wheeled(event) {
    const { offsetX, deltaX, deltaY, deltaMode, shiftKey } = event
    const unit = deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1
    const isOut = deltaY > 0 && this.length >= this.data.whole
    if (isOut && !shiftKey && !deltaX) return // the page scrolls
    event.preventDefault()
    if (shiftKey || Math.abs(deltaX) > Math.abs(deltaY)) {
      this.show(this.start + ((deltaX || deltaY) * unit) / this.scale, this.length)
    } else {
      this.zoom(Math.exp(deltaY * unit * ZOOM_PER_PX), this.ns(Math.max(offsetX, GUTTER_PX)))
    }
  }

  down(event) {
    if (event.button) return
    this.canvas.setPointerCapture(event.pointerId)
    const { offsetX: x, offsetY: y } = event
    const kind = y < MAP_PX ? "map" : event.shiftKey ? "brush" : "pan"
    this.drag = { kind, x, y, from: this.ns(x), isClick: true }
    clearTimeout(this.committing)
    this.tell(null)
    if (kind === "map") this.mapTo(x)
  }

  moved(event) {
    const { offsetX: x, offsetY: y } = event
    if (!this.drag) return this.tell(this.at(event), x, y)
    if (Math.hypot(x - this.drag.x, y - this.drag.y) > CLICK_PX) this.drag.isClick = false
    if (this.drag.kind === "map") this.mapTo(x)
    else if (this.drag.isClick) return
    else if (this.drag.kind === "pan") {
      this.canvas.style.cursor = "grabbing"
      this.show(this.drag.from - (x - GUTTER_PX) / this.scale, this.length)
    } else {
      const ends = [this.drag.from, this.ns(x)].map(ns => within(ns, 0, this.data.whole))
      this.brush = ends.sort((a, b) => a - b)
      this.redraw()
    }
  }

  up(event) {
    const drag = this.drag
    this.cancel()
    if (!drag) return
    if (drag.isClick && drag.kind === "pan") this.choose(this.at(event))
    else if (drag.kind === "brush" && !drag.isClick) this.measure(...this.brush)
    this.commitSoon()
  }

  cancel() {
    this.drag = null
    this.canvas.style.cursor = ""
  }

  mapTo(x) {
    const share = (x - GUTTER_PX) / (this.width - GUTTER_PX)
    this.show(share * this.data.whole - this.length / 2, this.length)
  }

  choose(mark) {
    const uid = mark?.uid >= 0 ? mark.uid : null
    if (uid === null && mark) return // not an event
    if (uid === this.selected) return
    this.selected = uid
    this.redraw()
    this.send("event", { uid })
  }

  pressed(event) {
    const target = event.composedPath()[0]
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return
    if (target.matches?.("input, textarea, select, [contenteditable=true]")) return
    const isHere = target === this.canvas
    const act = {
      w: () => this.zoom(1 / KEY_ZOOM),
      s: () => this.zoom(KEY_ZOOM),
      a: () => this.show(this.start - KEY_PAN * this.length, this.length),
      d: () => this.show(this.start + KEY_PAN * this.length, this.length),
      f: () => this.show(0, this.data.whole),
    }
    const arrows = { ArrowUp: "w", ArrowDown: "s", ArrowLeft: "a", ArrowRight: "d" }
    const key = isHere ? arrows[event.key] ?? event.key.toLowerCase() : event.key.toLowerCase()
    if (key === "escape" && isHere && this.brush) this.measure(0, 0)
    if (!act[key]) return
    event.preventDefault()
    act[key]()
  }

  // ---- data

  key(level, index) {
    return `${level} ${index}`
  }

  get level() {
    return Math.max(0, Math.floor(Math.log2(this.data.whole / this.length) + 1e-9))
  }

  span(level) {
    return this.data.whole / 2 ** level
  }

  // The finest part that is here with a span of a level, and how many levels it is above that.
  finest(level, index) {
    for (let up = 0; up <= level; up++) {
      const part = this.parts.get(this.key(level - up, Math.floor(index / 2 ** up)))
      if (part) return { part, up }
    }
    return {}
  }

  // The parts that cover the window, each with the time that it is drawn for; what is not here yet
  // is lacking.
  sources() {
    const { level } = this
    const span = this.span(level)
    const last = Math.min(Math.floor((this.start + this.length - 1) / span), 2 ** level - 1)
    const found = []
    for (let index = Math.floor(this.start / span); index <= last; index++) {
      const { part, up } = this.finest(level, index)
      const isEnough = up === 0 || (part?.is_whole && 2 ** up <= MAX_COARSE)
      const lacking = isEnough ? [] : [[level, index]]
      const before = found.at(-1)
      if (part && before?.part === part) {
        before.to = (index + 1) * span
        before.lacking.push(...lacking)
      } else found.push({ part, from: index * span, to: (index + 1) * span, lacking })
    }
    return found
  }

  fetchSoon() {
    clearTimeout(this.fetching)
    this.fetching = setTimeout(() => this.fetchParts(), this.parts.size ? FETCH_MS : 0)
  }

  fetchParts() {
    const needed = this.sources().flatMap(source => source.lacking)
    if (!this.parts.has(this.key(0, 0))) needed.push([0, 0])
    const keys = new Set(needed.map(place => this.key(...place)))
    for (const [key, stop] of this.pending) {
      if (!keys.has(key)) {
        stop.abort()
        this.pending.delete(key)
      }
    }
    for (const place of needed) this.fetchPart(...place)
    this.tellState()
  }

  async fetchPart(level, index) {
    const key = this.key(level, index)
    if (this.pending.has(key)) return
    const stop = new AbortController()
    this.pending.set(key, stop)
    const { version } = this.data
    const span = this.span(level)
    const [start, length] = [Math.floor(index * span), Math.ceil(span)]
    const answer = await this.ask("part", { start, length }, stop)
    if (this.pending.get(key) === stop) this.pending.delete(key)
    if (answer && version === this.data.version) {
      this.parts.set(key, answer)
      const oldest = [...this.parts.keys()].filter(one => one !== this.key(0, 0))
      while (oldest.length > MAX_PARTS) this.parts.delete(oldest.shift())
      if (!level) this.map = null
      this.redraw()
    }
    this.tellState()
  }

  async ask(what, parameters, stop = new AbortController()) {
    const { address, ticket, query } = this.data
    const link = new URL(`${address.replace(/^\//, "")}/${what}`, document.baseURI)
    link.search = new URLSearchParams({ ...query, ...parameters })
    try {
      const answer = await fetch(link, { signal: stop.signal, headers: { Authorization: `Ticket ${ticket}` } })
      if (answer.ok) {
        this.complain("")
        return await answer.json()
      }
      if (answer.status === 401 && !(Date.now() - this.renewedAt < RENEW_MS)) {
        this.renewedAt = Date.now()
        this.send("renewed", {}) // the rerun of the page brings another ticket
        return null
      }
      const body = await answer.json().catch(() => ({}))
      this.complain(body.error ?? `The server answered ${answer.status}.`)
    } catch {
      if (!stop.signal.aborted) this.complain("The server cannot be reached. Zoom again to retry.")
    }
    return null
  }

  abort() {
    for (const stop of this.pending.values()) stop.abort()
    this.pending.clear()
  }

  complain(text) {
    this.part("problem").textContent = text
    this.part("problem").hidden = !text
  }

  tellState() {
    this.part("loading").textContent = this.pending.size ? "Loading …" : ""
  }

  // ---- search and statistics

  async search() {
    const query = this.part("sought").value.trim()
    this.query = query.toLowerCase()
    this.match = -1
    this.found = null
    this.part("found").textContent = ""
    this.redraw()
    if (!query) return
    const found = await this.ask("search", { text: query })
    if (!found || query.toLowerCase() !== this.query) return
    this.found = found
    this.tellFound()
    this.redraw()
  }

  tellFound() {
    const { count, start } = this.found
    const all = count.toLocaleString("en-US")
    const few = start.length < count ? ` (first ${start.length.toLocaleString("en-US")})` : ""
    const text = this.match < 0 ? `${all} ${count === 1 ? "match" : "matches"}` : `${this.match + 1} of ${all}`
    this.part("found").textContent = text + few
  }

  async step(by) {
    clearTimeout(this.searching)
    if (this.part("sought").value.trim().toLowerCase() !== this.query) await this.search()
    const starts = this.found?.start ?? []
    if (!starts.length) return
    if (this.match < 0) {
      const next = starts.findIndex(start => start >= this.start)
      this.match = by > 0 ? Math.max(next, 0) : (next < 0 ? starts.length : next) - 1
    } else this.match += by
    this.match = (this.match + starts.length) % starts.length
    const [start, length] = [starts[this.match], this.found.length[this.match]]
    const isVisible = start >= this.start && start + length <= this.start + this.length
    if (!isVisible || length * this.scale < 2) {
      const span = Math.max(length * (2 * SEARCH_MARGIN + 1), MIN_NS)
      const shown = isVisible ? span : Math.min(this.length, span * 4)
      this.show(start + length / 2 - shown / 2, shown)
    }
    this.tellFound()
    this.redraw()
  }

  async measure(from, to) {
    this.brush = to > from ? [from, to] : null
    this.part("statistics").hidden = !this.brush
    this.redraw()
    if (!this.brush) return
    const [start, length] = [Math.floor(from), Math.max(Math.ceil(to - from), 1)]
    this.part("title").textContent = `${duration(length)} from ${inMs(start, 4)} ms`
    this.part("lines").replaceChildren()
    const answer = await this.ask("statistics", { start, length })
    if (!answer || this.brush?.[0] !== from) return
    const lines = answer.lines.map(({ row, what, count, time, share }) => {
      const line = document.createElement("tr")
      const cells = [row ? `${row}: ${what}` : what, count, time, share].map(text => {
        const cell = document.createElement("td")
        cell.textContent = text
        return cell
      })
      cells[0].prepend(this.swatch(row || what))
      line.append(...cells)
      return line
    })
    this.part("lines").replaceChildren(...lines)
  }

  // ---- drawing

  redraw() {
    if (this.frame) return
    this.frame = requestAnimationFrame(() => {
      this.frame = null
      if (this.data && this.canvas.isConnected) this.draw()
    })
  }

  draw() {
    const { canvas, context } = this
    const ratio = window.devicePixelRatio || 1
    this.width = canvas.clientWidth
    if (!this.width) return
    const [width, height] = [Math.round(this.width * ratio), Math.round(this.height * ratio)]
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height })
    context.setTransform(ratio, 0, 0, ratio, 0, 0)
    const style = getComputedStyle(canvas)
    const value = name => style.getPropertyValue(`--st-${name}`).trim()
    this.ink = {
      text: value("text-color"),
      background: value("background-color"),
      panel: value("secondary-background-color"),
      border: value("border-color"),
      primary: value("primary-color"),
    }
    context.fillStyle = this.ink.background
    context.fillRect(0, 0, this.width, this.height)
    context.font = `${FONT_PX}px ${style.fontFamily}`
    context.textBaseline = "middle"
    this.charPx = context.measureText("abcdefghijklmnopqrstuvwxyz_0123456789").width / 37
    this.drawAxis()
    context.save()
    context.beginPath()
    context.rect(GUTTER_PX, TOP_PX, this.width - GUTTER_PX, this.height - TOP_PX)
    context.clip()
    this.outlined = []
    const sources = this.sources().filter(source => source.part)
    for (const source of sources) this.drawBins(source)
    sources.forEach((source, number) => this.drawSlices(source, number === 0))
    this.drawMatch()
    this.drawSelection()
    this.drawBrush()
    context.restore()
    this.drawLabels()
    this.drawMap()
    const [from, to] = [this.start, this.start + this.length]
    const decimals = within(Math.ceil(3 - Math.log10(this.length / 1e6)), 0, 4)
    this.part("range").textContent = `${inMs(from, decimals)} – ${inMs(to, decimals)} ms · ${duration(this.length)}`
    Object.assign(canvas.dataset, { start: Math.round(from), length: Math.round(this.length) })
  }

  drawAxis() {
    const { context, ink } = this
    context.fillStyle = ink.panel
    for (const { top, height } of this.tops) context.fillRect(GUTTER_PX, top, this.width - GUTTER_PX, height - 2)
    const step = niceStep((TICK_PX / (this.width - GUTTER_PX)) * this.length)
    const decimals = within(-Math.floor(Math.log10(step / 1e6) + 1e-9), 0, 6)
    context.fillStyle = ink.text
    context.strokeStyle = ink.border
    context.lineWidth = 1
    context.textAlign = "center"
    context.beginPath()
    for (let at = Math.ceil(this.start / step) * step; at <= this.start + this.length; at += step) {
      const x = Math.round(this.x(at)) + 0.5
      context.moveTo(x, TOP_PX)
      context.lineTo(x, this.height)
      const text = `${inMs(at, decimals)} ms`
      const half = context.measureText(text).width / 2
      context.fillText(text, within(x, GUTTER_PX + half, this.width - half), MAP_PX + AXIS_PX / 2)
    }
    context.stroke()
  }

  drawLabels() {
    const { context, ink } = this
    context.textAlign = "left"
    for (const { label, top, height, isBar } of this.tops) {
      context.fillStyle = ink.text
      const y = top + (isBar ? height : Math.min(height, LANE_PX)) / 2
      context.fillText(this.cut(label, GUTTER_PX - 10), 0, y)
    }
  }

  // Leaves out the middle of a name, as long names often differ at the end; of a collective and its
  // kernel, the kernel; of words such as a cause, and of a collective with its size, the end.
  cut(text, px) {
    const room = Math.floor(px / this.charPx)
    if (text.length <= room) return text
    const [first] = text.split(" · ")
    if (first.length <= room) return first
    if (room < MIN_LETTERS) return ""
    const end = WORDS.test(first) ? 0 : Math.floor(room / 2)
    const begin = first.slice(0, room - 1 - end).replace(/[\d.]+$/, "")
    return `${begin}…${first.slice(first.length - end).replace(/^[\d.]+/, "")}` // no part of a number
  }

  drawBins({ part, from, to }) {
    const { context } = this
    const { row, lane, what, start, end, low, share } = part.bins
    const colors = part.whats.map(name => this.color(name)[0])
    context.globalAlpha = this.query ? NOT_MATCHING : 1
    for (let n = 0; n < start.length; n++) {
      if (end[n] <= this.start || start[n] >= this.start + this.length) continue
      const [a, b] = [Math.max(start[n], from), Math.min(end[n], to)]
      if (a >= b) continue
      const { top, height, isBar } = this.tops[row[n]]
      const room = isBar ? height - 2 : LANE_PX - 2
      const bottom = isBar ? top + height - 2 : top + (lane[n] + 1) * LANE_PX - 2
      const high = Math.max((share[n] / 100) * room, 1)
      const x = this.x(a)
      context.fillStyle = colors[what[n]]
      context.fillRect(x, bottom - (low[n] / 100) * room - high, Math.max(this.x(b) - x, 0.7), high)
    }
    context.globalAlpha = 1
  }

  // An event that lasts longer than a part is in several; it is drawn from the one that it starts in.
  isOf(source, isFirst, start) {
    return start < source.to && (isFirst || start >= source.from)
  }

  drawSlices(source, isFirst) {
    const { context, query, selected, ink } = this
    const { part } = source
    const { row, lane, what, name, start, length, uid } = part.slices
    const colors = part.whats.map(text => this.color(text))
    const matches = query && part.names.map(texts => texts.some(text => text.toLowerCase().includes(query)))
    const end = this.start + this.length
    const narrow = new Map()
    context.textAlign = "left"
    for (let n = 0; n < start.length; n++) {
      const till = start[n] + length[n]
      if (till < this.start || start[n] > end || !this.isOf(source, isFirst, start[n])) continue
      const x = this.x(Math.max(start[n], this.start))
      const w = this.x(Math.min(till, end)) - x
      const isSelected = uid[n] === selected && uid[n] >= 0
      const isMatch = !matches || matches[name[n]]
      if (w < 1 && !isSelected && !(matches && isMatch)) {
        const key = (row[n] * MAX_LANES + lane[n]) * MAX_WIDTH_PX + Math.floor(x)
        const shares = narrow.get(key) ?? narrow.set(key, new Map()).get(key)
        shares.set(what[n], (shares.get(what[n]) ?? 0) + w)
        continue
      }
      const y = this.tops[row[n]].top + lane[n] * LANE_PX
      const [fill, onFill] = colors[what[n]]
      const wide = w > 3 ? w - 0.6 : Math.max(w, 0.8)
      context.globalAlpha = isMatch ? 1 : NOT_MATCHING
      context.fillStyle = fill
      context.fillRect(x, y, wide, LANE_PX - 2)
      if (w >= MIN_LABEL_PX) {
        context.fillStyle = isMatch ? onFill : ink.text
        context.fillText(this.cut(part.names[name[n]][0], w - 7), x + 4, y + LANE_PX / 2 - 0.5, w - 6)
      }
      if (isSelected) this.outlined.push([x, y, Math.max(w, 2)])
    }
    this.drawNarrow(narrow, colors)
    context.globalAlpha = 1
  }

  // Events below a pixel, summed by pixel: as high as the share of its time, most time at the bottom.
  drawNarrow(narrow, colors) {
    const { context, query } = this
    const room = LANE_PX - 2
    context.globalAlpha = query ? NOT_MATCHING : 1
    for (const [key, shares] of narrow) {
      const [place, pixel] = [Math.floor(key / MAX_WIDTH_PX), key % MAX_WIDTH_PX]
      const [row, lane] = [Math.floor(place / MAX_LANES), place % MAX_LANES]
      const kinds = [...shares].sort((a, b) => b[1] - a[1])
      const total = kinds.reduce((sum, [, share]) => sum + share, 0)
      let bottom = this.tops[row].top + lane * LANE_PX + room
      for (const [what, share] of kinds) {
        const high = Math.max(share / Math.max(total, 1), what === kinds[0][0] ? 1 / room : 0) * room
        context.fillStyle = colors[what][0]
        context.fillRect(pixel, bottom - high, 1, high)
        bottom -= high
      }
    }
  }

  box(mark) {
    const x = this.x(mark.start)
    const y = this.tops[mark.row].top + (this.tops[mark.row].isBar ? 0 : mark.lane * LANE_PX)
    return [x, y, Math.max(mark.length * this.scale, 2)]
  }

  outline([x, y, w], color) {
    const { context } = this
    context.strokeStyle = this.ink.background
    context.lineWidth = 4
    context.strokeRect(x, y, w, LANE_PX - 2)
    context.strokeStyle = color
    context.lineWidth = 2
    context.strokeRect(x, y, w, LANE_PX - 2)
  }

  drawMatch() {
    if (!this.found || this.match < 0) return
    const mark = {}
    for (const name of ["row", "lane", "start", "length"]) mark[name] = this.found[name][this.match]
    this.outline(this.box(mark), this.ink.primary)
  }

  drawSelection() {
    const { context, ink, data } = this
    const isKnown = this.selected !== null && this.selected === data.selected
    const boxes = isKnown && !this.outlined.length ? data.places.map(mark => this.box(mark)) : this.outlined
    for (const box of boxes) this.outline(box, ink.text)
    if (!isKnown) return
    for (const [launch, kernel] of data.arrows) {
      const [x1, y1] = this.box(launch)
      const [x2, y2] = this.box(kernel)
      this.arrow(x1 + Math.min(launch.length * this.scale, 8) / 2, y1 < y2 ? y1 + LANE_PX - 2 : y1, x2, y1 < y2 ? y2 : y2 + LANE_PX - 2)
    }
  }

  arrow(x1, y1, x2, y2) {
    const { context, ink } = this
    const bend = (y2 - y1) / 2
    for (const [color, width] of [[ink.background, 4], [ink.text, 1.5]]) {
      context.strokeStyle = color
      context.lineWidth = width
      context.beginPath()
      context.moveTo(x1, y1)
      context.bezierCurveTo(x1, y1 + bend, x2, y2 - bend, x2, y2)
      context.stroke()
    }
    const back = Math.sign(y1 - y2) * 7
    context.fillStyle = ink.text
    context.beginPath()
    context.moveTo(x2, y2)
    context.lineTo(x2 - 4, y2 + back)
    context.lineTo(x2 + 4, y2 + back)
    context.fill()
  }

  drawBrush() {
    if (!this.brush) return
    const { context, ink } = this
    const [a, b] = this.brush.map(ns => this.x(ns))
    context.globalAlpha = 0.15
    context.fillStyle = ink.primary
    context.fillRect(a, TOP_PX, b - a, this.height - TOP_PX)
    context.globalAlpha = 1
    context.fillRect(a - 0.5, TOP_PX, 1, this.height)
    context.fillRect(b - 0.5, TOP_PX, 1, this.height)
  }

  // The whole recording: busy share of the GPU streams (else of the threads) by pixel.
  drawMap() {
    const { context, ink, width } = this
    const plot = width - GUTTER_PX
    context.fillStyle = ink.panel
    context.fillRect(GUTTER_PX, 0, plot, MAP_PX)
    const whole = this.parts.get(this.key(0, 0))
    if (whole) {
      if (this.map?.width !== plot || this.map.colors !== this.data.colors) {
        this.map = { width: plot, colors: this.data.colors, bars: this.mapBars(whole, Math.floor(plot)) }
      }
      for (const [x, share, color] of this.map.bars) {
        const high = Math.max(share * (MAP_PX - 2), 1)
        context.fillStyle = color
        context.fillRect(GUTTER_PX + x, MAP_PX - high, 1, high)
      }
    }
    context.fillStyle = ink.text
    context.textAlign = "left"
    context.fillText("Whole recording", 0, MAP_PX / 2)
    const x = GUTTER_PX + (this.start / this.data.whole) * plot
    const w = Math.max((this.length / this.data.whole) * plot, 3)
    context.globalAlpha = 0.55
    context.fillStyle = ink.background
    context.fillRect(GUTTER_PX, 0, x - GUTTER_PX, MAP_PX)
    context.fillRect(x + w, 0, width - x - w, MAP_PX)
    context.globalAlpha = 1
    context.strokeStyle = ink.primary
    context.lineWidth = 2
    context.strokeRect(x + 1, 1, Math.max(w - 2, 1), MAP_PX - 2)
  }

  mapBars(whole, plot) {
    const sum = new Map()
    const isMapped = row => this.data.mapped.includes(row)
    const perNs = plot / this.data.whole
    const add = (start, end, share, what) => {
      const [a, b] = [Math.max(start * perNs, 0), Math.min(end * perNs, plot)]
      for (let x = Math.floor(a); x < b; x++) {
        const covered = (Math.min(b, x + 1) - Math.max(a, x)) * share
        const shares = sum.get(x) ?? sum.set(x, new Map()).get(x)
        shares.set(what, (shares.get(what) ?? 0) + covered)
      }
    }
    const { slices, bins, whats } = whole
    slices.start.forEach((start, n) => {
      if (isMapped(slices.row[n])) add(start, start + slices.length[n], 1, whats[slices.what[n]])
    })
    bins.start.forEach((start, n) => {
      if (isMapped(bins.row[n])) add(start, bins.end[n], bins.share[n] / 100, whats[bins.what[n]])
    })
    return [...sum].map(([x, shares]) => {
      const [most] = [...shares].sort((a, b) => b[1] - a[1])[0]
      const total = [...shares.values()].reduce((a, b) => a + b, 0)
      return [x, Math.min(total, 1), this.color(most)[0]]
    })
  }

  // ---- what is under the pointer

  at({ offsetX: x, offsetY: y }) {
    const row = this.tops.findIndex(({ top, height }) => y >= top && y < top + height)
    if (row < 0) return null
    const { label, top, isBar } = this.tops[row]
    if (x < GUTTER_PX) return label ? { text: label } : null
    const lane = isBar ? 0 : Math.floor((y - top) / LANE_PX)
    const at = this.ns(x)
    const slack = 2 / this.scale
    let best = null
    const sources = this.sources().filter(source => source.part)
    sources.forEach((source, number) => {
      const { slices, bins, names, notes, whats } = source.part
      for (let n = 0; n < slices.start.length; n++) {
        if (slices.row[n] !== row || slices.lane[n] !== lane) continue
        if (!this.isOf(source, number === 0, slices.start[n])) continue
        const [start, length] = [slices.start[n], slices.length[n]]
        const away = Math.max(start - at, at - start - length, 0)
        if (away > slack || (best && away >= best.away)) continue
        const text = [
          names[slices.name[n]][1],
          `${duration(length)} from ${inMs(start, 4)} ms · ${whats[slices.what[n]]}`,
          notes[slices.note[n]],
        ]
        best = { away, start, length, uid: slices.uid[n], text: text.filter(Boolean).join("\n") }
      }
      if (best) return
      const here = [...bins.start.keys()].filter(n =>
        bins.row[n] === row && bins.lane[n] === lane && at >= bins.start[n] && at < bins.end[n])
      if (!here.length) return
      const [start, end] = [bins.start[here[0]], bins.end[here[0]]]
      const text = here.map(n => `${whats[bins.what[n]]}: ${bins.share[n]}% of ${duration(bins.end[n] - bins.start[n])}`)
      if (!isBar) text.push("Events too short to draw; zoom in.")
      best = { start, length: end - start, text: text.join("\n") }
    })
    return best
  }

  tell(mark, x, y) {
    const tip = this.part("tip")
    tip.hidden = !mark
    if (!this.drag) this.canvas.style.cursor = mark?.uid >= 0 ? "pointer" : ""
    if (!mark) return
    tip.textContent = mark.text
    const left = Math.min(x + 14, this.width - tip.offsetWidth - 4)
    const top = y + 18 + tip.offsetHeight > this.height ? y - tip.offsetHeight - 8 : y + 18
    Object.assign(tip.style, { left: `${Math.max(left, 0)}px`, top: `${top}px` })
  }
}

export default ({ data, parentElement, setTriggerValue }) => {
  const view = views.get(parentElement) ?? new Timeline(parentElement)
  views.set(parentElement, view)
  view.update(data, setTriggerValue)
  return () => view.leave()
}
