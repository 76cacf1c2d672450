// Sends a file in pieces to /api/uploads (tus 1.0) and goes on where it was broken off: after a lost
// connection by itself, after a reload or in another tab when the same file is chosen again.

const TUS = { "Tus-Resumable": "1.0.0" }
const SMALLEST_PIECE = 256 * 1024
const LARGEST_PIECE = 16 * 1024 * 1024
const PIECE_MS = 1000 // a piece takes about so long, so that the bar moves
const PAUSES_MS = [500, 1000, 2000, 4000, 8000]
const PATIENCE_MS = 10 * 60 * 1000 // without a byte that arrives
const RETRIED = [404, 408, 409, 423, 425, 429, 502, 503, 504]
const SPOKEN_MS = 10000

// An upload goes on while its page is drawn anew or another one is looked at.
const transfers = (window.jarvisUploads ??= new Map())

// Which upload a file belongs to; a browser may forbid to remember it.
const remembered = {
  get: mark => { try { return localStorage.getItem(mark) } catch { return null } },
  set: (mark, id) => { try { localStorage.setItem(mark, id) } catch {} },
  forget: mark => { try { localStorage.removeItem(mark) } catch {} },
}

class Refused extends Error {
  constructor(status, sentence) {
    super(sentence)
    this.status = status
  }
}

class Transfer {
  constructor(file, ticket) {
    this.file = file
    this.ticket = ticket
    this.sent = 0
    this.bytesPerMs = 0
    this.state = "running" // waiting, failed, done
    this.problem = ""
    this.changed = () => {}
    this.stop = new AbortController()
    this.root = new URL("api/uploads", document.baseURI).href
    this.mark = `jarvis-upload ${this.root} ${file.size} ${file.lastModified} ${file.name}`
  }

  async run() {
    this.become("running")
    let since = Date.now()
    let attempt = 0
    while (!this.stop.signal.aborted) {
      const before = this.sent
      try {
        await this.goOn()
        remembered.forget(this.mark)
        return this.become("done")
      } catch (error) {
        if (this.stop.signal.aborted) return
        if (this.sent > before) [since, attempt] = [Date.now(), 0]
        const isFinal = error instanceof Refused && !RETRIED.includes(error.status)
        if (isFinal || Date.now() - since > PATIENCE_MS) {
          return this.become("failed", error instanceof Refused ? error.message : NO_CONNECTION)
        }
        this.become("waiting", error instanceof Refused ? error.message : "")
        await this.pause(PAUSES_MS[Math.min(attempt++, PAUSES_MS.length - 1)])
      }
    }
  }

  async goOn() {
    await this.check()
    let upload = await this.begun()
    this.id = upload.id
    this.sent = upload.offset_bytes
    this.become("running")
    let size = 4 * SMALLEST_PIECE
    while (!upload.is_whole) {
      const begin = performance.now()
      const end = Math.min(this.sent + size, this.file.size)
      const answer = await this.ask("PATCH", `${this.root}/${this.id}`, {
        headers: {
          ...TUS,
          "Content-Type": "application/offset+octet-stream",
          "Upload-Offset": `${this.sent}`,
        },
        body: this.file.slice(this.sent, end),
      })
      const tookMs = Math.max(performance.now() - begin, 1)
      this.moved(Number(answer.headers.get("Upload-Offset")), tookMs)
      size = Math.max(SMALLEST_PIECE, Math.min(LARGEST_PIECE, this.bytesPerMs * PIECE_MS))
      if (this.sent === this.file.size) upload = await this.shown()
    }
  }

  // The upload of this file that was begun before, here or in another tab; else a new one.
  async begun() {
    this.id ??= remembered.get(this.mark)
    if (this.id) {
      try {
        return await this.shown()
      } catch (error) {
        if (error.status !== 404) throw error
      }
    }
    const name = btoa(String.fromCharCode(...new TextEncoder().encode(this.file.name)))
    const answer = await this.ask("POST", this.root, {
      headers: {
        ...TUS,
        "Upload-Length": `${this.file.size}`,
        "Upload-Metadata": `filename ${name}`,
      },
    })
    this.id = answer.headers.get("Location").split("/").pop()
    remembered.set(this.mark, this.id)
    return this.shown()
  }

  async shown() {
    return (await this.ask("GET", `${this.root}/${this.id}`, {})).json()
  }

  // A file that was changed or moved looks like a lost connection.
  async check() {
    try {
      await this.file.slice(0, 1).arrayBuffer()
    } catch {
      throw new Refused(0, "The file cannot be read: it was changed or moved. Choose it again.")
    }
  }

  async ask(method, address, options) {
    const headers = { Authorization: `Ticket ${this.ticket}`, ...options.headers }
    const answer = await fetch(address, { method, signal: this.stop.signal, ...options, headers })
    if (answer.ok) return answer
    const said = await answer.json().catch(() => ({}))
    throw new Refused(answer.status, said.error ?? `The server answered ${answer.status}.`)
  }

  moved(offset, tookMs) {
    const now = (offset - this.sent) / tookMs
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

  become(state, problem = "") {
    this.state = state
    this.problem = problem
    this.changed()
  }

  cancel() {
    this.stop.abort()
    remembered.forget(this.mark)
    const headers = { ...TUS, Authorization: `Ticket ${this.ticket}` }
    if (this.id) fetch(`${this.root}/${this.id}`, { method: "DELETE", headers }).catch(() => {})
  }
}

const NO_CONNECTION = "The server cannot be reached. What has arrived is kept there for a day."

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
  if (state === "waiting") parts.push("no connection, trying again")
  else if (bytesPerMs) {
    parts.push(`${bytes(bytesPerMs * 1000)}/s`)
    parts.push(`${duration((file.size - sent) / bytesPerMs)} left`)
  }
  return parts.join(" · ")
}

export default ({ data, parentElement, setStateValue }) => {
  const part = name => parentElement.querySelector(`.${name}`)
  const [box, input, choose, cancel] = ["upload", "file", "choose", "cancel"].map(part)
  let spoken = 0

  const say = (text, isUrgent = false) => {
    if (!isUrgent && Date.now() - spoken < SPOKEN_MS) return
    spoken = Date.now()
    part("spoken").textContent = text
  }

  const put = (name, text) => {
    part(name).textContent = text
    part(name).hidden = !text
  }

  const draw = () => {
    const transfer = transfers.get(data.key)
    const isActive = ["running", "waiting"].includes(transfer?.state)
    const name = transfer?.file.name ?? data.name
    const canGoOn = transfer?.state === "failed" && transfer.id
    part("bar").hidden = !isActive
    cancel.hidden = !isActive && !canGoOn
    choose.hidden = isActive
    if (canGoOn) choose.textContent = "Go on"
    else choose.textContent = name ? "Choose another file" : "Choose a file"
    part("words").textContent = name ?? data.words
    put("figures", isActive ? figures(transfer) : "")
    put("problem", transfer?.problem ?? "")
    if (isActive) {
      part("bar").value = transfer.file.size ? transfer.sent / transfer.file.size : 0
      say(figures(transfer), transfer.state === "waiting")
    } else if (transfer?.state === "done") {
      transfers.delete(data.key)
      say(`${name} is uploaded`, true)
      setStateValue("upload", transfer.id)
    }
  }

  const start = file => {
    if (!file || ["running", "waiting"].includes(transfers.get(data.key)?.state)) return
    const transfer = new Transfer(file, data.ticket)
    transfers.set(data.key, transfer)
    transfer.changed = draw
    if (file.size > data.most_bytes) transfer.become("failed", data.too_large)
    else transfer.run()
  }

  const underWay = transfers.get(data.key)
  if (underWay) {
    underWay.changed = draw
    underWay.ticket = data.ticket
  }
  input.accept = data.endings
  input.onchange = () => {
    start(input.files[0])
    input.value = "" // so that the same file can be chosen again
  }
  choose.onclick = () => {
    const transfer = transfers.get(data.key)
    if (transfer?.state === "failed" && transfer.id) transfer.run()
    else input.click()
  }
  cancel.onclick = () => {
    transfers.get(data.key)?.cancel()
    transfers.delete(data.key)
    say("The upload is cancelled", true)
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
    start(event.dataTransfer.files[0])
  }
  draw()
  return () => {
    const transfer = transfers.get(data.key)
    if (transfer) transfer.changed = () => {}
  }
}
