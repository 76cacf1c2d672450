// Passes a trace to a window with the Perfetto UI: it answers "PONG" to "PING" once it can take one
// (https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui).

const PING_MS = 100
const PATIENCE_MS = 60 * 1000

const answered = (viewer, origin) =>
  new Promise((done, failed) => {
    const since = Date.now()
    const listen = event => {
      if (event.source === viewer && event.origin === origin && event.data === "PONG") end(done)
    }
    const end = settle => {
      clearInterval(pings)
      removeEventListener("message", listen)
      settle()
    }
    const pings = setInterval(() => {
      if (viewer.closed) end(() => failed(new Error("The window was closed.")))
      else if (Date.now() - since > PATIENCE_MS) end(() => failed(new Error("Perfetto does not answer.")))
      else viewer.postMessage("PING", origin)
    }, PING_MS)
    addEventListener("message", listen)
  })

const loaded = async file => {
  const answer = await fetch(new URL(file.replace(/^\//, ""), document.baseURI))
  if (!answer.ok) {
    const body = await answer.json().catch(() => ({}))
    throw new Error(body.error ?? `The server answered ${answer.status}.`)
  }
  return answer.arrayBuffer()
}

export default ({ data, parentElement }) => {
  const button = parentElement.querySelector(".open")
  const note = parentElement.querySelector(".note")

  button.onclick = async () => {
    const viewer = window.open(data.viewer) // first: browsers block windows that open later
    if (!viewer) {
      note.textContent = "The browser blocked the window. Allow it to open windows of this page."
      return
    }
    note.textContent = "Waiting for Perfetto …"
    const origin = new URL(data.viewer).origin
    try {
      const [buffer] = await Promise.all([loaded(data.file), answered(viewer, origin)])
      const trace = { buffer, title: data.title, fileName: data.file_name, url: location.href }
      viewer.postMessage({ perfetto: trace }, origin, [buffer])
      note.textContent = "Opened in another window."
    } catch (error) {
      note.textContent = `Not opened: ${error.message} Download the file and open it in Perfetto.`
    }
  }
}
