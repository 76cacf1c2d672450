// Sends a file in chunks to /api/uploads (tus 1.0) and resumes interrupted uploads: automatically
// after a lost connection, or when the same file is chosen again after a reload or in another tab.

const TUS = { "Tus-Resumable": "1.0.0" }
const MIN_CHUNK = 256 * 1024
const MAX_CHUNK = 16 * 1024 * 1024
const CHUNK_MS = 1000 // target time of a chunk, so that the progress bar moves
const RETRY_DELAYS_MS = [500, 1000, 2000, 4000, 8000]
const TIMEOUT_MS = 10 * 60 * 1000 // without progress
const RETRIED = [404, 408, 409, 423, 425, 429, 502, 503, 504]
const AT_ONCE = 4 // transfers
const ANNOUNCE_MS = 10000 // minimum interval of announcements for screen readers

// Uploads continue while the page is redrawn or another page is open.
const transfers = (window.jarvisUploads ??= new Map())

// The upload id of a file; browsers can disable local storage.
const storedIds = {
  get: mark => { try { return localStorage.getItem(mark) } catch { return null } },
  set: (mark, id) => { try { localStorage.setItem(mark, id) } catch {} },
  forget: mark => { try { localStorage.removeItem(mark) } catch {} },
}

// The name of a file; of one in a folder, with the folders below that, which may tell the rank.
const nameOf = file => pathOf(file).join("_")
const pathOf = file => {
  const path = droppedPaths.get(file) ?? file.webkitRelativePath.split("/").slice(1)
  return path.length ? path : [file.name]
}
const droppedPaths = new WeakMap() // of files in dropped folders: browsers tell only those of chosen ones

// Returns the files of a dropped folder or file. Browsers list a folder in parts.
const filesOf = async (entry, folders = []) => {
  if (entry.isFile) {
    const file = await new Promise((done, failed) => entry.file(done, failed))
    droppedPaths.set(file, [...folders, file.name])
    return [file]
  }
  const reader = entry.createReader()
  const files = []
  while (true) {
    const part = await new Promise((done, failed) => reader.readEntries(done, failed))
    if (!part.length) return files
    for (const each of part) files.push(...(await filesOf(each, [...folders, entry.name])))
  }
}

// As of a chosen folder, the names of files do not have that of a single dropped folder.
const filesBelow = async entries => {
  const each = await Promise.all(entries.map(entry => filesOf(entry)))
  const files = each.flat()
  if (entries.length === 1) files.forEach(file => droppedPaths.get(file).shift())
  return files
}

class RequestError extends Error {
  constructor(status, sentence) {
    super(sentence)
    this.status = status
  }
}

class Transfer {
  constructor(file, ticket) {
    this.file = file
    this.name = nameOf(file)
    this.ticket = ticket
    this.sent = 0
    this.bytesPerMs = 0
    this.state = "running" // waiting, failed, done
    this.problem = ""
    this.changed = () => {}
    this.stop = new AbortController()
    this.root = new URL("api/uploads", document.baseURI).href
    this.mark = `jarvis-upload ${this.root} ${file.size} ${file.lastModified} ${this.name}`
  }

  async run() {
    this.setState("running")
    let since = Date.now()
    let attempt = 0
    while (!this.stop.signal.aborted) {
      const before = this.sent
      try {
        await this.transferChunks()
        storedIds.forget(this.mark)
        return this.setState("done")
      } catch (error) {
        if (this.stop.signal.aborted) return
        if (this.sent > before) [since, attempt] = [Date.now(), 0]
        const isFinal = error instanceof RequestError && !RETRIED.includes(error.status)
        if (isFinal || Date.now() - since > TIMEOUT_MS) {
          return this.setState("failed", error instanceof RequestError ? error.message : NO_CONNECTION)
        }
        this.setState("waiting", error instanceof RequestError ? error.message : "")
        await this.pause(RETRY_DELAYS_MS[Math.min(attempt++, RETRY_DELAYS_MS.length - 1)])
      }
    }
  }

  async transferChunks() {
    await this.check()
    let upload = await this.findOrCreate()
    this.id = upload.id
    this.sent = upload.offset_bytes
    this.setState("running")
    let size = 4 * MIN_CHUNK
    while (!upload.is_whole) {
      const begin = performance.now()
      const end = Math.min(this.sent + size, this.file.size)
      const answer = await this.request("PATCH", `${this.root}/${this.id}`, {
        headers: {
          ...TUS,
          "Content-Type": "application/offset+octet-stream",
          "Upload-Offset": `${this.sent}`,
        },
        body: this.file.slice(this.sent, end),
      })
      const elapsedMs = Math.max(performance.now() - begin, 1)
      this.recordProgress(Number(answer.headers.get("Upload-Offset")), elapsedMs)
      size = Math.max(MIN_CHUNK, Math.min(MAX_CHUNK, this.bytesPerMs * CHUNK_MS))
      if (this.sent === this.file.size) upload = await this.fetchStatus()
    }
  }

  // Returns the existing upload of this file, from this or another tab; else creates one.
  async findOrCreate() {
    this.id ??= storedIds.get(this.mark)
    if (this.id) {
      try {
        return await this.fetchStatus()
      } catch (error) {
        if (error.status !== 404) throw error
      }
    }
    const name = btoa(String.fromCharCode(...new TextEncoder().encode(this.name)))
    const answer = await this.request("POST", this.root, {
      headers: {
        ...TUS,
        "Upload-Length": `${this.file.size}`,
        "Upload-Metadata": `filename ${name}`,
      },
    })
    this.id = answer.headers.get("Location").split("/").pop()
    storedIds.set(this.mark, this.id)
    return this.fetchStatus()
  }

  async fetchStatus() {
    return (await this.request("GET", `${this.root}/${this.id}`, {})).json()
  }

  // Checks that the file is readable: a changed or moved file would look like a lost connection.
  async check() {
    try {
      await this.file.slice(0, 1).arrayBuffer()
    } catch {
      throw new RequestError(0, "The file cannot be read: it was changed or moved. Choose it again.")
    }
  }

  async request(method, address, options) {
    const headers = { Authorization: `Ticket ${this.ticket}`, ...options.headers }
    const answer = await fetch(address, { method, signal: this.stop.signal, ...options, headers })
    if (answer.ok) return answer
    const body = await answer.json().catch(() => ({}))
    throw new RequestError(answer.status, body.error ?? `The server answered ${answer.status}.`)
  }

  recordProgress(offset, elapsedMs) {
    const now = (offset - this.sent) / elapsedMs
    this.bytesPerMs = this.bytesPerMs ? 0.7 * this.bytesPerMs + 0.3 * now : now
    this.sent = offset
    this.changed()
  }

  pause(ms) {
    return new Promise(done => {
      setTimeout(done, ms)
      addEventListener("online", done, { once: true })
      this.stop.signal.addEventListener("abort", done, { once: true })
    })
  }

  setState(state, problem = "") {
    this.state = state
    this.problem = problem
    this.changed()
  }

  cancel() {
    this.stop.abort()
    storedIds.forget(this.mark)
    const headers = { ...TUS, Authorization: `Ticket ${this.ticket}` }
    if (this.id) fetch(`${this.root}/${this.id}`, { method: "DELETE", headers }).catch(() => {})
  }
}

// Several files, each with a transfer of its own; to the page they are one.
class Transfers {
  constructor(files, { ticket, most_bytes, too_large }) {
    this.changed = () => {}
    this.each = files.map(file => new Transfer(file, ticket))
    for (const each of this.each) {
      each.changed = () => this.changed()
      if (each.file.size > most_bytes) each.setState("failed", too_large)
    }
  }

  // Few at a time: many connections share the same bandwidth.
  async run() {
    const waiting = this.each.filter(({ state, problem, id }) => state !== "done" && (!problem || id))
    const next = async () => {
      while (waiting.length) await waiting.shift().run()
    }
    await Promise.all(Array.from({ length: AT_ONCE }, next))
  }

  get state() {
    const states = this.each.map(each => each.state)
    const first = ["running", "waiting", "failed"].find(state => states.includes(state))
    return first ?? "done"
  }

  get file() {
    const [{ file }] = this.each
    const size = this.each.reduce((sum, each) => sum + each.file.size, 0)
    return this.each.length === 1 ? file : { name: `${this.each.length} files`, size }
  }

  get sent() {
    return this.each.reduce((sum, each) => sum + each.sent, 0)
  }

  get bytesPerMs() {
    const active = this.each.filter(({ state }) => state === "running")
    return active.reduce((sum, each) => sum + each.bytesPerMs, 0)
  }

  get id() {
    return this.each.map(({ id }) => id).filter(Boolean).join(",")
  }

  get problem() {
    const failed = this.each.filter(({ problem }) => problem)
    if (this.each.length === 1) return failed[0]?.problem ?? ""
    return failed.map(({ name, problem }) => `${name}: ${problem}`).join("\n")
  }

  set ticket(ticket) {
    for (const each of this.each) each.ticket = ticket
  }

  cancel() {
    for (const each of this.each) each.cancel()
  }
}

const NO_FOLDER = "The folder cannot be read: it was changed or moved. Choose its files."
const NO_CONNECTION = "The server cannot be reached. The uploaded part is stored there for a day."

const bytes = count => {
  const units = ["B", "kB", "MB", "GB", "TB"]
  const power = Math.min(count < 1 ? 0 : Math.floor(Math.log10(count) / 3), units.length - 1)
  return `${Number((count / 1000 ** power).toPrecision(3))} ${units[power]}`
}

const duration = ms => {
  const seconds = Math.max(Math.round(ms / 1000), 1)
  const minutes = Math.floor(seconds / 60)
  return minutes ? `${minutes} min ${seconds % 60} s` : `${seconds} s`
}

const figures = ({ file, sent, state, bytesPerMs }) => {
  const parts = [`${bytes(sent)} of ${bytes(file.size)}`]
  if (state === "waiting") parts.push("no connection, retrying")
  else if (bytesPerMs) {
    parts.push(`${bytes(bytesPerMs * 1000)}/s`)
    parts.push(`${duration((file.size - sent) / bytesPerMs)} left`)
  }
  return parts.join(" · ")
}

export default ({ data, parentElement, setStateValue }) => {
  const part = name => parentElement.querySelector(`.${name}`)
  const [box, input, choose, cancel] = ["upload", "file", "choose", "cancel"].map(part)
  const [folder, below] = ["folder", "below"].map(part)
  let announcedAt = 0
  let notice = ""

  const announce = (text, isUrgent = false) => {
    if (!isUrgent && Date.now() - announcedAt < ANNOUNCE_MS) return
    announcedAt = Date.now()
    part("spoken").textContent = text
  }

  const setText = (name, text) => {
    part(name).textContent = text
    part(name).hidden = !text
  }

  const draw = () => {
    const transfer = transfers.get(data.key)
    const isActive = ["running", "waiting"].includes(transfer?.state)
    const name = transfer?.file.name ?? data.name
    const canResume = transfer?.state === "failed" && transfer.id
    part("bar").hidden = !isActive
    cancel.hidden = !isActive && !canResume
    choose.hidden = isActive
    folder.hidden = isActive || canResume || !data.folder
    if (canResume) choose.textContent = "Resume"
    else choose.textContent = name ? data.again : data.choose
    part("words").textContent = name ?? data.words
    setText("figures", isActive ? figures(transfer) : "")
    setText("problem", transfer?.problem ?? notice)
    if (isActive) {
      part("bar").value = transfer.file.size ? transfer.sent / transfer.file.size : 0
      announce(figures(transfer), transfer.state === "waiting")
    } else if (transfer?.state === "done") {
      transfers.delete(data.key)
      announce(`Uploaded: ${name}`, true)
      setStateValue("upload", transfer.id)
    }
  }

  const start = files => {
    const chosen = data.takes_several ? [...files] : [...files].slice(0, 1)
    notice = chosen.length > data.most_files ? data.too_many : ""
    if (notice) return draw()
    if (!chosen.length || ["running", "waiting"].includes(transfers.get(data.key)?.state)) return
    const transfer = new Transfers(chosen, data)
    transfers.set(data.key, transfer)
    transfer.changed = draw
    transfer.run()
    draw()
  }

  const startBelow = files => {
    const traces = tracesBelow(files)
    start(traces)
    if (!traces.length) warn(data.no_traces)
  }

  const warn = text => {
    notice = text
    draw()
  }

  const tracesBelow = files => {
    const endings = data.endings.split(",")
    const isTrace = path => {
      const name = path.at(-1)
      const isHidden = path.some(part => part.startsWith("."))
      return !isHidden && name !== data.no_trace && endings.some(ending => name.endsWith(ending))
    }
    const found = [...files].filter(file => isTrace(pathOf(file)))
    return found.sort((one, other) => (nameOf(one) < nameOf(other) ? -1 : 1))
  }

  const active = transfers.get(data.key)
  if (active) {
    active.changed = draw
    active.ticket = data.ticket
  }
  input.accept = data.endings
  input.multiple = data.takes_several
  input.onchange = () => {
    start(input.files)
    input.value = "" // allows choosing the same file again
  }
  folder.textContent = data.folder
  folder.onclick = () => below.click()
  below.onchange = () => {
    startBelow(below.files)
    below.value = ""
  }
  choose.onclick = () => {
    const transfer = transfers.get(data.key)
    if (transfer?.state === "failed" && transfer.id) transfer.run()
    else input.click()
  }
  cancel.onclick = () => {
    transfers.get(data.key)?.cancel()
    transfers.delete(data.key)
    announce("Upload cancelled", true)
    draw()
  }
  box.ondragover = event => {
    event.preventDefault()
    box.classList.add("over")
  }
  box.ondragleave = () => box.classList.remove("over")
  box.ondrop = event => {
    event.preventDefault()
    box.classList.remove("over")
    const { files, items } = event.dataTransfer
    const entries = [...items].map(item => item.webkitGetAsEntry?.()).filter(Boolean)
    if (!entries.some(entry => entry.isDirectory)) start(files)
    else if (!data.takes_several) warn(data.only_files)
    else filesBelow(entries).then(startBelow, () => warn(NO_FOLDER))
  }
  draw()
  return () => {
    const transfer = transfers.get(data.key)
    if (transfer) transfer.changed = () => {}
  }
}
